"""The run's labels on vLLM's own metrics, with vLLM's real classes and Ray's real endpoint.

vLLM's wheel is heavy, and only its Python part is needed: `make test-vllm` puts it into a folder.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.common.run.handed_on import RUN_VARIABLE
from akka_otel_callbacks.verl.rollout import vllm

SITE = "VLLM_SITE"
LABELS = {
    "akka_optimize_training_run_id": "run-1",
    "akka_optimize_training_run_attempt": "2",
    "k8s_pod_name": "pod-x",
}


@pytest.fixture(scope="module")
def served() -> dict[str, Any]:
    site = os.environ.get(SITE)
    if not site:
        pytest.skip(f"{SITE} names no folder with vLLM's wheel (656 MB unpacked); `make test-vllm` makes one")
    root = Path(__file__).parents[3]
    environ = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(root / "src"), str(root), str(Path(site).resolve())]),
        "VLLM_TARGET_DEVICE": "cpu",
        "RAY_AUTH_MODE": "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
    }
    process = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("vllm_server.py"))],
        env=environ,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert process.returncode == 0, process.stderr[-4000:]
    return dict(json.loads(process.stdout.splitlines()[-1]))


def series(served: dict[str, Any], name: str) -> list[tuple[dict[str, str], float]]:
    """Labels and value of each scraped series of a name."""
    found = []
    for line in served["scraped"]:
        head, value = line.rsplit(" ", 1)
        if head.partition("{")[0] == name:
            found.append((dict(re.findall(r'(\w+)="([^"]*)"', head)), float(value)))
    return found


@pytest.mark.vllm
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ray_vllm_kv_cache_usage_perc", 0.25),
        ("ray_vllm_num_requests_running", 3.0),
        ("ray_vllm_generation_tokens_total", 7.0),
        ("ray_vllm_time_to_first_token_seconds_count", 1.0),
        ("ray_vllm_cache_config_info", 1.0),
    ],
)
def test_each_series_carries_run_attempt_and_pod(served: dict[str, Any], name: str, value: float) -> None:
    ((labels, found),) = series(served, name)
    assert labels.items() >= LABELS.items()
    assert labels["engine"] == "0"
    assert found == value


@pytest.mark.vllm
def test_whether_the_engine_is_awake_is_still_there_long_after_it_was_set(served: dict[str, Any]) -> None:
    states = {labels["sleep_state"]: value for labels, value in series(served, "ray_vllm_engine_sleep_state")}
    assert states["awake"] == 1.0


@pytest.mark.vllm
def test_vllms_own_endpoint_stays_as_it_is(served: dict[str, Any]) -> None:
    assert "PrometheusStatLogger" in served["ours"]["loggers"]
    assert 'vllm:num_requests_running{engine="0",model_name="m"} 3.0' in served["ours"]["own"]
    assert "akka_optimize" not in served["ours"]["own"]
    assert served["ours"]["failures"] == []


@pytest.mark.vllm
def test_statistics_that_are_switched_off_stay_off(served: dict[str, Any]) -> None:
    assert served["disabled"]["loggers"] == []


@pytest.mark.vllm
def test_an_engine_outside_a_run_is_left_alone(served: dict[str, Any]) -> None:
    assert "RunStatLogger" in served["ours"]["loggers"]
    assert set(served["ours"]["loggers"]) - set(served["foreign"]["loggers"]) == {"RunStatLogger"}
    assert served["foreign_disabled"]["loggers"] == []


class Engine:
    """A constructor with the arguments of vLLM's that matter here."""

    def __init__(self, vllm_config: Any, log_stats: bool, stat_loggers: list[Any] | None = None) -> None:
        self.arguments = (vllm_config, log_stats, stat_loggers)


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Engine]:
    monkeypatch.setitem(
        sys.modules,
        "akka_otel_callbacks.verl.rollout.stat_logger",
        SimpleNamespace(RunStatLogger="ours"),  # type: ignore[arg-type]
    )
    hooked = type("AsyncLLM", (Engine,), dict(vars(Engine)))
    vllm.install(SimpleNamespace(AsyncLLM=hooked))  # type: ignore[arg-type]
    return hooked


def test_in_a_run_the_engine_gets_one_logger_more(engine: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "run")
    assert engine("config", True).arguments == ("config", True, ["ours"])
    assert engine("config", log_stats=True, stat_loggers=["users"]).arguments == ("config", True, ["users", "ours"])
    assert engine("config", log_stats=False).arguments == ("config", False, None)


def test_outside_a_run_it_gets_none(engine: type[Engine], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RUN_VARIABLE, raising=False)
    assert engine("config", True).arguments == ("config", True, None)


def test_a_logger_that_cannot_be_imported_leaves_the_engine_alone(
    engine: type[Engine], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "run")
    monkeypatch.setitem(sys.modules, "akka_otel_callbacks.verl.rollout.stat_logger", None)  # type: ignore[arg-type]
    assert engine("config", True).arguments == ("config", True, None)
