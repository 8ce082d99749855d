"""Pushes to one exporter, and keeps what it has not accepted yet."""

from __future__ import annotations

from opentelemetry.sdk.metrics import Histogram, ObservableCounter, ObservableUpDownCounter
from opentelemetry.sdk.metrics.export import AggregationTemporality, MetricExporter, MetricExportResult, MetricsData

from akka_otel_callbacks.common.export.acceptance import Reply
from akka_otel_callbacks.common.export.producer import Producer, Run
from akka_otel_callbacks.common.export.targets.target import Target
from akka_otel_callbacks.common.vocabulary.metric import Kind

INSTRUMENTS = {
    ObservableCounter: Kind.COUNTER,
    ObservableUpDownCounter: Kind.UPDOWNCOUNTER,
    Histogram: Kind.HISTOGRAM,
}
"""The SDK's classes by which an exporter says what it wants as the change since the last export."""


class Push:
    """Sends what a producer gives, and tells it what has arrived."""

    def __init__(self, exporter: MetricExporter, run: Run, target: Target) -> None:
        self._exporter, self._target = exporter, target
        self._producer = Producer(run, deltas=_deltas(exporter))
        self._arrived = True
        self._sending = False
        self._most_steps: int | None = None

    def export(self) -> bool:
        """Sends what there is, in parts if the receiver finds it too large. False if it did not arrive. It is then part
        of the next export."""
        while True:
            data = self._producer.collect(self._most_steps)
            if data is None:
                return True
            arrived = self._send(data)
            reply = self._reply()
            if not arrived and reply.too_large and self._producer.steps > 1:
                self._most_steps = self._producer.steps // 2
                continue
            if not (arrived or reply.final):
                return False
            self._producer.sent(rejected=not arrived and reply.invalid)
            if not self._producer.is_part:
                self._most_steps = None
                return arrived

    def hurry(self) -> None:
        """Has the exporter try again without a pause."""
        self._exporter.force_flush()

    def _send(self, data: MetricsData) -> bool:
        self._arrived, self._sending = False, True
        try:
            self._arrived = self._exporter.export(data) is MetricExportResult.SUCCESS
        finally:
            self._sending = False
        return self._arrived

    def close(self) -> None:
        self._exporter.shutdown()

    def missing(self, timeout_s: float, *, ended: bool) -> str | None:
        """What the target did not get, and why. None if it got everything.

        Args:
            timeout_s: how long the last export had.
            ended: whether it ended within that time.
        """
        unsent, missing = self._producer.unsent, []
        if unsent.rejected:
            missing.append(f"{_steps(unsent.rejected)} rejected by {self._target}")
        if not (ended and self._arrived):
            what = _steps(unsent.steps) if unsent.steps else "the last figures were"
            missing.append(f"{what} not sent to {self._target}: {self._why(timeout_s, ended=ended)}")
        return "; ".join(missing) or None

    def _why(self, timeout_s: float, *, ended: bool) -> str:
        reply = self._reply()
        if not ended and not self._sending:
            return f"they could not be collected within {timeout_s:g} s, which is no fault of the receiver's"
        if reply.reason:
            return reply.reason
        return "it did not take them" if ended else f"it did not answer within {timeout_s:g} s"

    def _reply(self) -> Reply:
        """The receiver's reply to the newest export. A file gives none, so its reply only says whether the export
        arrived."""
        return getattr(self._exporter, "reply", None) or Reply(self._arrived)


def _steps(count: int) -> str:
    return f"{count} {'step was' if count == 1 else 'steps were'}"


def _deltas(exporter: MetricExporter) -> frozenset[Kind]:
    preferred = exporter._preferred_temporality or {}
    return frozenset(
        kind for instrument, kind in INSTRUMENTS.items() if preferred.get(instrument) is AggregationTemporality.DELTA
    )
