"""Probes against real receivers and endpoints that misbehave in every way."""

from __future__ import annotations

import os
import socket
import sys
import time
from pathlib import Path

import pytest

from akka_otel_callbacks.cli.probe import probe
from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.export.targets.console import ConsoleTarget
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.prometheus import PrometheusTarget
from akka_otel_callbacks.common.export.targets.target import Answer, Target
from tests.support.otlp_sink import answering, otlp_sink, refusing, silent


def _probe_both(monkeypatch: pytest.MonkeyPatch, url: str, protocol: str = "http/protobuf") -> list[Answer]:
    environ = {"OTEL_EXPORTER_OTLP_ENDPOINT": url, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    selection = select(os.environ, "run")
    return probe([selection.metrics[0], selection.traces[0]])


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_an_endpoint_that_answers_gets_one_empty_export_a_signal(
    monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    with otlp_sink() as sink:
        answers = _probe_both(monkeypatch, sink.grpc if protocol == "grpc" else sink.http, protocol)
        assert [answer.ok for answer in answers] == [True, True]
        assert len(sink.requests) == 2
        assert sink.metrics() == []
        assert sink.spans() == []


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_one_that_refuses(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    with refusing() as url:
        for answer in _probe_both(monkeypatch, url, protocol):
            assert answer.ok is False
            assert "Connection refused" in answer.text


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
def test_one_that_never_answers_is_waited_for_two_seconds(monkeypatch: pytest.MonkeyPatch, protocol: str) -> None:
    with silent() as url:
        start = time.monotonic()
        answers = _probe_both(monkeypatch, url, protocol)
        assert time.monotonic() - start < 8  # not the exporters' own 10 s
    assert answers == [Answer(False, "no answer within 2 s")] * 2


@pytest.mark.parametrize(
    ("status", "reason"),
    [(503, "503 Service Unavailable"), (401, "401 Unauthorized"), (404, "404 Not Found")],
)
def test_one_that_says_no(monkeypatch: pytest.MonkeyPatch, status: int, reason: str) -> None:
    with answering(status) as url:
        assert _probe_both(monkeypatch, url) == [Answer(False, reason)] * 2


def test_a_host_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    for answer in _probe_both(monkeypatch, "http://nowhere.invalid:4318"):
        assert answer.ok is False
        assert "nowhere.invalid" in answer.text or "Name or service not known" in answer.text


def test_an_exporter_that_cannot_be_built(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_CERTIFICATE", "/no/such/ca.pem")
    for answer in _probe_both(monkeypatch, "https://localhost:1", "grpc"):
        assert answer.ok is False
        assert "/no/such/ca.pem" in answer.text


def test_an_exporter_for_prometheus_that_cannot_label_the_series(monkeypatch: pytest.MonkeyPatch) -> None:
    exporter = pytest.importorskip("opentelemetry.exporter.prometheus", reason="the prometheus extra is not installed")
    monkeypatch.setattr(exporter, "PrometheusMetricReader", type("Reader", (), {"__init__": lambda self, prefix: None}))
    (answer,) = probe([PrometheusTarget("asked", "127.0.0.1", 0, Path("runs"))])
    assert answer.ok is False
    assert "is too old; pip install 'akka-otel-callbacks[prometheus]'" in answer.text


def test_a_prometheus_address() -> None:
    pytest.importorskip("opentelemetry.exporter.prometheus", reason="the prometheus extra is not installed")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        target = PrometheusTarget("asked", "127.0.0.1", port, Path("runs"))
        (answer,) = probe([target])
        assert answer.ok is False
        assert "in use" in answer.text
    assert probe([target]) == [Answer(True, "the address is free, and will stand in runs/targets-*.json")]


@pytest.mark.parametrize(
    ("target", "package", "extra"),
    [
        (PrometheusTarget("asked", "127.0.0.1", 0, Path("runs")), "opentelemetry.exporter.prometheus", "prometheus"),
        (
            select({"OTEL_METRICS_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "run").metrics[0],
            "grpc",
            "grpc",
        ),
    ],
)
def test_a_package_that_is_missing(target: Target, package: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "akka_otel_callbacks.common.export.otlp.grpc", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    (answer,) = probe([target])
    assert answer.ok is False
    assert f"pip install 'akka-otel-callbacks[{extra}]'" in answer.text


def test_a_file(tmp_path: Path) -> None:
    def answer(path: Path) -> Answer:
        return probe([FileTarget("asked", path)])[0]

    assert answer(tmp_path / "new" / "deep" / "metrics.jsonl") == Answer(True, "can be written")
    assert list(tmp_path.iterdir()) == []  # finding out leaves no trace
    existing = tmp_path / "metrics.jsonl"
    existing.touch()
    assert answer(existing) == Answer(True, "can be written")
    assert answer(existing / "metrics.jsonl") == Answer(False, f"{existing} is in the way")
    assert answer(tmp_path) == Answer(False, f"{tmp_path} is in the way")


def test_a_console_has_nothing_to_find_out() -> None:
    assert probe([ConsoleTarget("asked")]) == [Answer(None)]
