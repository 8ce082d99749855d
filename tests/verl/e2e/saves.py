"""What a run says of the checkpoints that it saved."""

from __future__ import annotations

from akka_otel_callbacks.common.vocabulary import names
from tests.support.points import SpanRecord
from tests.verl.e2e.harness import TRACE_ID, Run

STAGE = names.SPAN_CHECKPOINT_OPERATION.of(names.CheckpointOperation.STAGE)


def check_saves(run: Run, count: int, kind: str | None) -> None:
    """Each is a success of its kind, with a span under the job's."""
    attributes = {
        names.ATTR_CHECKPOINT_OPERATION.name: names.CheckpointOperation.STAGE,
        names.ATTR_CHECKPOINT_OUTCOME.name: names.CheckpointOutcome.SUCCESS,
        **({} if kind is None else {names.ATTR_CHECKPOINT_ARTIFACT_KIND.name: kind}),
    }
    operation = names.ATTR_CHECKPOINT_OPERATION.name
    points = [
        point
        for point in run.points
        if point.name == names.CHECKPOINT_OPERATION_DURATION.name
        and point.attributes[operation] == names.CheckpointOperation.STAGE
    ]
    assert {tuple(sorted(point.attributes.items())) for point in points} == {tuple(sorted(attributes.items()))}
    assert points[-1].histogram.count == count
    assert [span.attributes for span in saves(run)] == [attributes] * count
    ((trace_id, parent_id),) = {(span.trace_id, span.parent_span_id) for span in saves(run)}
    assert trace_id == TRACE_ID
    assert job_id(run) in (parent_id, None)
    seconds = [(span.end_ns - span.start_ns) / 1e9 for span in saves(run)]
    assert abs(sum(seconds) - points[-1].histogram.sum) < 1e-3


def saves(run: Run) -> list[SpanRecord]:
    return [span for span in run.sink.spans() if span.name == STAGE]


def job_id(run: Run) -> str | None:
    """None where the job's process was killed, which then left no span of its own."""
    return next((span.span_id for span in run.sink.spans() if span.name == names.SPAN_JOB.name), None)
