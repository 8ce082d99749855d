"""The one thing that a TRL user adds: `callbacks=[AkkaTelemetryCallback()]`."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from transformers import Trainer, TrainerCallback

from akka_otel_callbacks.common import switches
from akka_otel_callbacks.common.guard import guarded, report
from akka_otel_callbacks.trl.evaluation import publish, with_logged
from akka_otel_callbacks.trl.handed import Handed, said
from akka_otel_callbacks.trl.running import find_trainer, running, tap_train
from akka_otel_callbacks.trl.session import Options, Session
from akka_otel_callbacks.trl.training import Training, attempt_of

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter, MeterProvider
    from opentelemetry.trace import TracerProvider
    from transformers import TrainerControl, TrainerState, TrainingArguments

    from akka_otel_callbacks.common.gpu.health import GpuHealth
    from akka_otel_callbacks.common.run.attempt import Attempt
    from akka_otel_callbacks.common.telemetry import Telemetry


Given = tuple[Any, ...]
"""What an event hands over by position: the arguments, the state, the control, and anything after them."""
Named = Mapping[str, Any]
"""What an event hands over by name."""
ORDER = "args", "state", "control"
"""The names of the first three. Another callback may pass some or all of them by name."""


def _event_of_step(handle: Callable[[Any, Training | None, Given, Named], object]) -> Callable[..., None]:
    """`guarded` for the events of each step, which also finds the event's training. Such an event hands over six things
    by name. A wrapper that unpacks and packs them once more took a tenth of the training thread's time."""
    where = handle.__qualname__

    def event(self: AkkaTelemetryCallback, *given: Any, **named: Any) -> None:
        try:
            if len(given) < 3:
                given = (*given, *(named[name] for name in ORDER[len(given) :]))
            session, state = self._session, given[1]
            training = session.latest
            if training is None or training.state is not state:
                training = session.training(state)
            handle(self, training, given, named)
        except Exception as error:  # noqa: BLE001 - nothing may reach the training
            report(where, error)

    event.__name__, event.__qualname__, event.__doc__ = handle.__name__, where, handle.__doc__
    return event


class AkkaTelemetryCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Publishes the figures of a GRPO, RLOO or SFT training through OpenTelemetry.

    Without any configuration the figures go to files under `akka-otel/<run id>/`; the standard `OTEL_*` variables
    send them to a collector or a Prometheus endpoint instead. `AKKA_OTEL_DISABLE=1` switches the callback off.

    Each training is an attempt of the callback's run. One that resumes from a checkpoint is the next attempt of the
    checkpoint's run.

    Args:
        run_id: the run's ID; by default `akka.optimize.training.run.id` of `OTEL_RESOURCE_ATTRIBUTES`, the
            checkpoint's, or a new one.
        attempt: which attempt of that run the first training is, from 1; by default it is counted.
        project: what the run belongs to, in dashboards.
        resource: more resource attributes, by full name.
        peak_flops: FLOP/s of one device, for the utilization (MFU); by default the dense bf16 peak of its kind.
        gpus: the GPUs to watch; by default those that the trainer trains on, sampled every 5 seconds. False leaves
            NVML alone, as `AKKA_OTEL_GPU_DISABLE=1` does.
        meter_provider: exports the metrics instead of a provider of the callback's own; it is flushed, not shut down.
            The resource is then that provider's: make it with `run_resource`.
        tracer_provider: the same for spans.
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        attempt: int | None = None,
        project: str | None = None,
        resource: Mapping[str, Any] | None = None,
        peak_flops: float | None = None,
        gpus: GpuHealth | bool | None = None,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        watched = None if isinstance(gpus, bool) else gpus
        self._session = Session(
            Options(
                said(run_id, attempt, project, resource),
                peak_flops,
                gpus is not False,
                Handed(meter_provider, tracer_provider, watched),
            )
        )

    def attach(self, trainer: Trainer) -> AkkaTelemetryCallback:
        """Names the trainer, for the rare case that the callback cannot find it by itself. Returns the callback."""
        self._session.name(trainer)
        return self

    @property
    def meter(self) -> Meter:
        """A meter for metrics of your own: `callback.meter.create_counter("solved")`. They are exported with the run's
        figures, under the run's resource, by the process that publishes these. You can use it before, between and
        during trainings. Totals go on from one training to the next, also if the environment asks for deltas. In a
        forked child they begin anew. A callback of an observable instrument runs on the exporter's thread and must not
        wait for anything.
        """
        return self._session.meter()

    # Events, in the order in which a training fires them.

    @guarded
    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        trainer = self._find(state)
        if trainer is not None and not _is_off():
            tap_train(type(trainer))
            if state.is_world_process_zero:
                self._session.count(trainer, args)  # FSDP has not hidden the model's shapes yet

    @guarded
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._begin(args, state)
        if (training := self._session.training(state)) is not None:
            training.restored()

    @_event_of_step
    def on_step_begin(self, training: Training | None, given: Given, named: Named) -> None:
        if (training := training or self._joined(given[0], given[1])) is not None:
            training.begin_step(given[0])

    @_event_of_step
    def on_pre_optimizer_step(self, training: Training | None, given: Given, named: Named) -> None:
        if training is not None and (loop := training.loop) is not None:
            loop.gradients_ready(named.get("optimizer"))

    @_event_of_step
    def on_optimizer_step(self, training: Training | None, given: Given, named: Named) -> None:
        if training is not None and (loop := training.loop) is not None:
            loop.optimized()

    @_event_of_step
    def on_step_end(self, training: Training | None, given: Given, named: Named) -> None:
        if training is not None:
            training.end_step()

    @guarded
    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if (loop := self._session.loop(state)) is not None:
            loop.epoch_ended()

    @_event_of_step
    def on_log(self, training: Training | None, given: Given, named: Named) -> None:
        if training is not None and (loop := training.loop) is not None:
            loop.logged(named.get("logs") or next(iter(given[3:]), {}))

    @guarded
    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if (training := self._session.training(state) or self._joined(args, state)) is not None:
            training.evaluated(with_logged(metrics or {}, state))
        elif running(state) is None and state.is_world_process_zero and not _is_off():
            trainer = self._find(state)
            if not self._stands_back(trainer):
                publish(self._session, trainer, args, with_logged(metrics or {}, state))

    @guarded
    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        training = self._session.training(state)
        if training is not None and training.run is None:  # nobody sees the end of its `train`
            self._session.end(training)

    def _joined(self, args: TrainingArguments, state: TrainerState) -> Training | None:
        """The training of a state, if the callback joins in the middle of it. It begins there."""
        run = running(state)
        if run is None or any(met is self for met in run.met):
            return None
        self._begin(args, state)
        return self._session.training(state)

    def _begin(self, args: TrainingArguments, state: TrainerState) -> None:
        if (run := running(state)) is not None:
            run.met.append(self)
        if _is_off():
            self._session.say_once(logging.INFO, f"{switches.EVERYTHING} is set: nothing is published")
            return
        trainer = self._find(state)
        if self._stands_back(trainer):
            line = "another AkkaTelemetryCallback publishes this training, so this one does nothing"
            self._session.say_once(logging.WARNING, line)
            return
        if running(state) is None:
            tap_train(type(trainer))  # somebody replaced `train`, or it was called before the callback was made
        self._session.begin(trainer, args, state, self._hears(trainer))

    def _hears(self, trainer: Trainer | None) -> Callable[[], bool]:
        """A function that says whether the callback is still one of the trainer's. A callback that another callback
        calls never was one of them."""
        if trainer is None or not _is_among(self, _callbacks(trainer)):
            return lambda: True
        watched, place = weakref.ref(trainer), [*map(id, _callbacks(trainer))].index(id(self))

        def hears() -> bool:
            """Called at each tapped call, a dozen times a step. Searching the list would take three times as long."""
            found: Any = watched()
            try:
                if found.callback_handler.callbacks[place] is self:
                    return True
            except (AttributeError, IndexError):
                pass
            return _is_among(self, _callbacks(found))

        return hears

    def _stands_back(self, trainer: Trainer | None) -> bool:
        """Whether another of our callbacks publishes this trainer. The first one does."""
        first = next((found for found in _callbacks(trainer) if isinstance(found, AkkaTelemetryCallback)), self)
        return first is not self

    def _find(self, state: TrainerState) -> Trainer | None:
        found = find_trainer(state)
        return found if found is not None else self._session.named()

    @property
    def telemetry(self) -> Telemetry | None:
        """The telemetry of the current training, or of the latest if there are several. None outside of a training.
        Pass it to `akka_otel_callbacks.checkpoints`. Do not close it."""
        return self._session.telemetry()

    @property
    def attempt(self) -> Attempt | None:
        """The run's ID and the attempt's number of the current training, `run_id` and `number`, to name things after
        them."""
        telemetry = self.telemetry
        return None if telemetry is None else attempt_of(telemetry)


def _is_off() -> bool:
    return switches.is_off(switches.EVERYTHING, os.environ)


def _callbacks(trainer: Trainer | None) -> list[Any]:
    handler = getattr(trainer, "callback_handler", None)
    return getattr(handler, "callbacks", [])


def _is_among(callback: object, callbacks: list[Any]) -> bool:
    """Whether this very object is in the list. Callbacks may define `==`, which may fail."""
    return id(callback) in map(id, callbacks)
