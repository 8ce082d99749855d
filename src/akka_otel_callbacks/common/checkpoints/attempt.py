"""One attempt at a checkpoint operation, once it has ended, as figures and a span."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from akka_otel_callbacks.common.checkpoints.description import Description
from akka_otel_callbacks.common.tracing.trace import mark_failed
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

if TYPE_CHECKING:
    from opentelemetry.trace import Span

    from akka_otel_callbacks.common.telemetry import Telemetry

Reason = names.CheckpointFailureReason
USUAL_REASON: Mapping[str, str] = {
    names.CheckpointOperation.UPLOAD: Reason.TRANSFER,
    names.CheckpointOperation.MATERIALIZE: Reason.TRANSFER,
    names.CheckpointOperation.CATALOG_RESERVE: Reason.CATALOG,
    names.CheckpointOperation.CATALOG_ACKNOWLEDGE: Reason.CATALOG,
    names.CheckpointOperation.VALIDATE: Reason.VALIDATION,
}
"""The reason of a failure that nobody gives a reason for, by operation. For any other operation it is `internal`."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at an operation. Times are Unix nanoseconds.

    Attributes:
        failure_reason: why it failed. None if it succeeded.
        error: the class of the exception that ended it. None without one.
        moved_bytes: the bytes that a transfer really moved. None where that is not known.
    """

    operation: str
    description: Description
    start_ns: int
    end_ns: int
    failure_reason: str | None = None
    error: type[BaseException] | None = None
    moved_bytes: float | None = None

    def publish(self, telemetry: Telemetry, span: Span | None = None) -> None:
        """Publishes the figures and the span. `span` is the one that was begun with the attempt. Without it a span is
        written as a whole."""
        labels = self._labels()
        reason = {} if self.failure_reason is None else {names.ATTR_CHECKPOINT_FAILURE_REASON.name: self.failure_reason}
        seconds = (self.end_ns - self.start_ns) / 1e9
        telemetry.measure(names.CHECKPOINT_OPERATION_DURATION, seconds, {**labels, **reason})
        if self.moved_bytes is not None:
            telemetry.measure(names.CHECKPOINT_TRANSFER_SIZE, self.moved_bytes, labels)
        span = span or telemetry.trace.begin(names.SPAN_CHECKPOINT_OPERATION.of(self.operation), self.start_ns)
        self._end(span, {**labels, **reason, **self.description.attributes()})
        if self.operation == names.CheckpointOperation.MATERIALIZE and self.failure_reason is None:
            telemetry.trace.describe(self.description.identities())  # the job continues from what it fetched

    def outcome(self) -> str:
        outcomes = names.CheckpointOutcome
        return outcomes.SUCCESS if self.failure_reason is None else outcomes.FAILURE

    def _labels(self) -> dict[str, AttributeValue]:
        return {
            names.ATTR_CHECKPOINT_OPERATION.name: self.operation,
            names.ATTR_CHECKPOINT_OUTCOME.name: self.outcome(),
            **self.description.labels(),
        }

    def _end(self, span: Span, attributes: Mapping[str, AttributeValue]) -> None:
        from opentelemetry.trace import Status, StatusCode

        span.set_attributes(attributes)
        if self.error is not None:
            mark_failed(span, self.error)
        elif self.failure_reason is not None:
            span.set_status(Status(StatusCode.ERROR, self.failure_reason))
        span.end(self.end_ns)
