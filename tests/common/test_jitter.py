"""Exports leave the random numbers of a training alone."""

from __future__ import annotations

import random

import pytest

from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary.step import SFTStep
from tests.support.otlp_sink import otlp_sink


@pytest.mark.parametrize("protocol", ["http/protobuf", "grpc"])
@pytest.mark.parametrize("taken", [True, False], ids=["taken", "refused"])
def test_an_export_draws_no_number(protocol: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with otlp_sink(200 if taken else 503) as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.grpc if protocol == "grpc" else sink.http)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", protocol)
        before = random.getstate()
        telemetry = Telemetry.start(identify({}, engine={}), SFTStep)
        telemetry.capture(Steps(), step=True)
        telemetry.flush(1.5)  # a refused export is tried again within this time
        telemetry.close()
        assert random.getstate() == before
        assert bool(sink.metrics()) == taken
        assert bool(sink.refused) != taken


class Steps:
    def deliver(self, recorder: object) -> None:
        recorder.record(SFTStep(number=1))  # type: ignore[attr-defined]
