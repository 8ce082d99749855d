"""Who a run is, and what reaches its processes, on a real Ray that the user's program started before verl."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("ray", reason="comes with verl")

from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE, forwarded
from akka_otel_callbacks.common.vocabulary import names
from tests.verl.ray_driver import drive

RUN_ID, ATTEMPT = names.ATTR_RUN_ID.name, names.ATTR_RUN_ATTEMPT.name
RATE = names.ATTR_RUN_LEARNING_RATE.name


@pytest.fixture(scope="module")
def trainings(tmp_path_factory: pytest.TempPathFactory) -> list[list[dict[str, Any]]]:
    """The workers of three trainings, as they were made; two are of a run that the user names."""
    folder = tmp_path_factory.mktemp("working_dir")
    (folder / "users.txt").touch()
    done = drive("tests.verl.ray_job", str(folder), "0.001", "0.002@mine", "0.003@mine")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "telemetry failed" not in done.stdout + done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("told "))
    return list(json.loads(line.removeprefix("told ")))


def test_each_training_of_a_sweep_is_a_run_or_an_attempt_with_its_own_settings(trainings: Any) -> None:
    runs = []
    for workers in trainings:
        (told,) = {worker[RUN_VARIABLE] for worker in workers}
        attributes = forwarded({RUN_VARIABLE: told})
        runs.append((attributes[RUN_ID], attributes[ATTEMPT], attributes[RATE]))
    assert runs[0][0].startswith("verl-")
    assert runs[0][1:] == ("1", "0.001")
    assert runs[1:] == [("mine", "1", "0.002"), ("mine", "2", "0.003")]


def test_workers_and_what_they_make_have_what_ray_was_not_given(trainings: Any) -> None:
    for worker in [worker for workers in trainings for worker in workers]:
        assert worker["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://c:4318"
        attributes = forwarded(worker)
        assert (attributes["team"], attributes["k8s.cluster.name"]) == ("red", "c")
        assert "of-driver" not in worker[RUN_VARIABLE]
        assert "AKKA_FOREIGN_SECRET" not in worker
        assert worker["server"] == {name: worker[name] for name in worker["server"]}
        assert RUN_VARIABLE in worker["server"]


def test_what_the_user_gave_ray_stays(trainings: Any) -> None:
    for workers in trainings:
        assert [worker["RANK"] for worker in workers] == ["0", "1"]
        for worker in workers:
            assert (worker["USERS"], worker["OTEL_SERVICE_NAME"]) == ("1", "theirs")
            assert forwarded(worker)[names.ATTR_SERVICE_NAME.name] == "theirs"
            assert worker["folder"] == ["users.txt"]
