"""The notebook that trains with verl: it runs as it stands, ends with the page, and sends the same to a collector."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")
pytest.importorskip("nbclient", reason="the notebook is run with nbclient")

from akka_otel_callbacks.common.vocabulary import names
from tests.examples.notebooks import executed
from tests.support.otlp_sink import otlp_sink


def test_it_trains_and_shows_the_page(tmp_path: Path) -> None:
    with otlp_sink() as sink:
        environ = {"OTEL_METRICS_EXPORTER": "otlp,file", "OTEL_EXPORTER_OTLP_ENDPOINT": sink.http}
        page = executed("verl_cpu.ipynb", tmp_path, environ)
        assert sink.latest(names.RL_STEP_COUNT).value == 3
    assert page.startswith("<!doctype html>")
    assert names.RunEngine.VERL in page
    assert [*(tmp_path / "akka-otel" / "notebook-verl").glob("metrics-*.jsonl")], "the workers write files of their own"
