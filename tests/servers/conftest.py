"""Runs on real servers, for every query."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

pytest.importorskip("trl", reason="the runs train with TRL")

from tests.servers import runs
from tests.servers.live import live_servers
from tests.servers.queries import ROOT
from tests.servers.replay import replayed
from tests.servers.world import World
from tests.trl import trainings

RULES = ROOT / "deploy" / "alerts" / "scrape.yml"


@pytest.fixture(scope="package")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """A service, a healthy reinforcement run and a supervised run that goes wrong, seven hours old."""
    folder = tmp_path_factory.mktemp("servers")
    trainings.OUTPUT = folder / "output"
    model = trainings.save_model(folder / "model")
    (folder / "live").mkdir()
    (folder / "replay").mkdir()
    with live_servers(folder / "live", rules=[RULES]) as live:
        recordings = [runs.service(live), runs.reinforcement(live, model), runs.supervised(live, model)]
    with replayed(recordings, folder / "replay") as replay:
        yield World(recordings, replay)
