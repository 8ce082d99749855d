"""The telemetry of a service that runs training jobs."""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any

from opentelemetry.trace import NoOpTracerProvider

from akka_otel_callbacks.common.service.checks import known, named, seconds, truth
from akka_otel_callbacks.common.service.counts import Counts
from akka_otel_callbacks.common.service.durations import Durations
from akka_otel_callbacks.common.service.identity import identify_service
from akka_otel_callbacks.common.service.occupancy import Occupancy
from akka_otel_callbacks.common.service.operations import attributes_of
from akka_otel_callbacks.common.service.phases import ENDS
from akka_otel_callbacks.common.service.progress import RunProgress
from akka_otel_callbacks.common.service.reading import Reading
from akka_otel_callbacks.common.service.state import ServiceState
from akka_otel_callbacks.common.telemetry import CLOSE_TIMEOUT_S, Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute
from akka_otel_callbacks.common.vocabulary.names import RunPhase
from akka_otel_callbacks.common.vocabulary.points import AttributeValue

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider

COUNTERS = (names.RUN_PHASE_ENTERED, names.RUN_FAILURES, names.GPU_TIME, names.SERVICE_OPERATIONS)


class ServiceTelemetry:
    """Publishes what a service that runs training jobs does and has. Exporters and their variables are those of a
    training. Every method takes microseconds and may be called on any thread, an event loop's among them.

    Start it where the service starts, which is after a server has forked its workers, and close it when it ends:

        with ServiceTelemetry(read_state) as telemetry:
            run = telemetry.begin_run("support-triage")
            run = telemetry.enter_phase(run, RunPhase.SUBMITTING)

    Args:
        state: returns what the service holds now. It is called on the exporter's thread at every collection, so it may
            read a database, quickly. Where it raises, the gauges are absent and the log says so once.
        instance: this instance of the service on the gauges of pools and projects; without one, the pod's name, or
            outside Kubernetes the host's name and the process ID.
        resource: attributes of the resource, by full name.
        meter_provider: exports the metrics in place of exporters of our own.

    Raises:
        TypeError: `state` is no function, or an `async` one.
        ValueError: `instance` is empty.
    """

    def __init__(
        self,
        state: Callable[[], ServiceState],
        *,
        instance: str | None = None,
        resource: Mapping[str, Any] | None = None,
        meter_provider: MeterProvider | None = None,
    ) -> None:
        if not callable(state) or inspect.iscoroutinefunction(state):
            raise TypeError("state is a plain function without arguments that returns a ServiceState, not an async one")
        if instance is not None:
            named("instance", instance)
        identity = identify_service(os.environ, resource, instance)
        self.instance = identity.instance
        self._counts = Counts(COUNTERS)
        self._telemetry = Telemetry.start(
            identity,
            None,
            meter_provider=meter_provider,
            tracer_provider=NoOpTracerProvider(),  # a service has no job's span
        )
        self._durations = Durations(self._telemetry.measure)
        self._telemetry.publish(Reading(state, Occupancy(self.instance)))
        self._telemetry.publish(self._counts)

    # The life of a run

    def begin_run(
        self, project: str, phase: str = RunPhase.RESOLVING_DATASET, *, at_s: float | None = None
    ) -> RunProgress:
        """Counts a run that begins.

        Args:
            project: the training project that it belongs to.
            phase: its first phase, one of `RunPhase`.
            at_s: when that is, in Unix seconds. None is now.

        Returns:
            where the run stands. Keep it, in the service's own state where that outlives the process.

        Raises:
            ValueError: the phase is unknown, or the project has no name.
            ImpossibleOrder: no run begins with this phase. It is a ValueError, too.
        """
        run = RunProgress.start(project, phase, _now_or(at_s))
        self._counts.add(names.RUN_PHASE_ENTERED, _of_phase(run.project, phase))
        return run

    def enter_phase(
        self, run: RunProgress, phase: str, *, at_s: float | None = None, failed_in: str | None = None
    ) -> RunProgress:
        """Records that a run leaves its phase for the next: how long it was in the old one and that it entered the new
        one; with a last phase, also how long the run took, and whether it failed. Call it once for each transition,
        after the service has committed it.

        Args:
            run: where the run stands. A service that keeps it elsewhere makes a `RunProgress` of what it kept.
            phase: the next phase, one of `RunPhase`.
            at_s: when the run enters it, in Unix seconds. None is now.
            failed_in: with `RunPhase.FAILED`, the phase that the failure belongs to. None is the one that the run is
                in, or was in before it cleaned up.

        Returns:
            where the run stands now. Keep it.

        Raises:
            ValueError: a phase is unknown, or `failed_in` comes with another phase than `RunPhase.FAILED`.
            ImpossibleOrder: the run cannot enter this phase from where it is. Nothing is recorded.
        """
        now = run.entering(phase, _now_or(at_s))
        failed_in = _failed_in(run, phase, failed_in)
        self._durations.add(names.RUN_PHASE_DURATION, run.entered_s, now.entered_s, _of_phase(run.project, run.phase))
        self._counts.add(names.RUN_PHASE_ENTERED, _of_phase(run.project, phase))
        if phase in ENDS:
            ended = _of(run.project, names.ATTR_RUN_OUTCOME, ENDS[phase])
            self._durations.add(names.RUN_DURATION, run.began_s, now.entered_s, ended)
        if failed_in is not None:
            self._counts.add(names.RUN_FAILURES, _of_phase(run.project, failed_in))
        return now

    def gpu_time(self, project: str, duration_s: float, *, derived: bool) -> None:
        """Adds to the GPU time that a project's jobs consumed.

        Args:
            project: the training project.
            duration_s: seconds of all devices together.
            derived: whether it was estimated from the start and end of a job, and not reported by the backend.

        Raises:
            ValueError: the project has no name, or the time is negative, infinite or no number.
        """
        attributes: dict[str, AttributeValue] = {
            names.ATTR_PROJECT.name: named("project", project),
            names.ATTR_GPU_DERIVED.name: truth("derived", derived),
        }
        self._counts.add(names.GPU_TIME, attributes, seconds("duration_s", duration_s))

    # Pipelines and operations

    def stage_ended(self, project: str, stage_type: str, outcome: str, duration_s: float) -> None:
        """Records one stage of a pipeline.

        Args:
            project: the training project.
            stage_type: one of `StageType`.
            outcome: one of `StageOutcome`.
            duration_s: how long the stage took.

        Raises:
            ValueError: a word is unknown, the project has no name, or the duration is not a finite number from 0.
        """
        attributes = {
            names.ATTR_PROJECT.name: named("project", project),
            names.ATTR_PIPELINE_STAGE_TYPE.name: known(names.ATTR_PIPELINE_STAGE_TYPE, stage_type),
            names.ATTR_PIPELINE_STAGE_OUTCOME.name: known(names.ATTR_PIPELINE_STAGE_OUTCOME, outcome),
        }
        self._telemetry.measure(names.PIPELINE_STAGE_DURATION, seconds("duration_s", duration_s), attributes)

    def operation(self, operation: str, stage: str, outcome: str, reason: str | None = None) -> None:
        """Counts an accepted request, or an attempt to have something outside the service done: to pause a job, to call
        the catalog, to prepare a branch.

        Args:
            operation: one of `Operation`.
            stage: one of `OperationStage`.
            outcome: one of `OperationOutcome`.
            reason: one of `FailureReason`, for every outcome but `OperationOutcome.SUCCEEDED`.

        Raises:
            ValueError: a word is unknown, or the reason is missing or too much.
        """
        self._counts.add(names.SERVICE_OPERATIONS, attributes_of(operation, stage, outcome, reason))

    def operation_ended(
        self,
        operation: str,
        stage: str,
        outcome: str,
        reason: str | None = None,
        *,
        accepted_s: float,
        at_s: float | None = None,
    ) -> None:
        """Records how long an operation took from its durable acceptance to its end: a pause's acknowledgement, the
        release of resources, or the last result of a preparation.

        Args:
            operation: as for `operation`, like the next three.
            accepted_s: when it was accepted, in Unix seconds, from the service's own state.
            at_s: when it ended, in Unix seconds. None is now.

        Raises:
            ValueError: as for `operation`; or a time is not a finite number from 0.
        """
        attributes = attributes_of(operation, stage, outcome, reason)
        accepted_s = seconds("accepted_s", accepted_s)
        self._durations.add(names.SERVICE_OPERATION_DURATION, accepted_s, _now_or(at_s), attributes)

    # The end

    def flush(self, timeout_s: float = CLOSE_TIMEOUT_S) -> bool:
        """Exports now, and waits for at most `timeout_s`. False where that took longer."""
        return self._telemetry.flush(timeout_s)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Exports what is left, reading the state once more, and closes the exporters, within `timeout_s` in all."""
        self._telemetry.close(timeout_s=timeout_s)

    def __enter__(self) -> ServiceTelemetry:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _now_or(at_s: float | None) -> float:
    return time.time() if at_s is None else seconds("at_s", at_s)


def _of(project: str, attribute: Attribute, value: str) -> dict[str, AttributeValue]:
    return {names.ATTR_PROJECT.name: project, attribute.name: value}


def _of_phase(project: str, phase: str) -> dict[str, AttributeValue]:
    return _of(project, names.ATTR_RUN_PHASE, phase)


def _failed_in(run: RunProgress, phase: str, failed_in: str | None) -> str | None:
    """The phase that a failure belongs to. None where the run does not fail."""
    if phase == RunPhase.FAILED:
        return run.worked_in if failed_in is None else known(names.ATTR_RUN_PHASE, failed_in)
    if failed_in is not None:
        raise ValueError(f"failed_in={failed_in!r} comes with {RunPhase.FAILED} only, and the run enters {phase}")
    return None
