"""A callback's state in its process: its trainings, and the identity of their run."""

from __future__ import annotations

import logging
import os
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common import switches
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.presence import is_published
from akka_otel_callbacks.common.run.attempt import Attempt, begin
from akka_otel_callbacks.common.run.identity import RunIdentity, generated_run_id, identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.trl.accelerators import device_ids
from akka_otel_callbacks.trl.efficiency import Efficiency, efficiency
from akka_otel_callbacks.trl.handed import Handed
from akka_otel_callbacks.trl.kinds import kind_of
from akka_otel_callbacks.trl.loop import Loop
from akka_otel_callbacks.trl.running import running, tap_train
from akka_otel_callbacks.trl.settings import engine_attributes
from akka_otel_callbacks.trl.training import Training

if TYPE_CHECKING:
    from opentelemetry.metrics import Meter
    from transformers import Trainer, TrainerState, TrainingArguments

    from akka_otel_callbacks.common.export.user_metrics import UserMetrics


@dataclass(frozen=True)
class Options:
    """What a user gave to the callback."""

    said: Mapping[str, Any]
    """Resource attributes by full name."""
    peak_flops: float | None
    gpus: bool
    handed: Handed


class Session:
    """The state of one callback. A copy of it, pickled or not, has the same options and nothing else, so it is another
    run."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._begin_run()
        self._trainings: list[Training] = []
        self.latest: Training | None = None
        """The training that the latest event belonged to, until it ends. Mostly the next event belongs to it, too."""
        self._named: Callable[[], Trainer | None] = lambda: None
        self._counted: tuple[Callable[[], object], Efficiency | None] | None = None
        self._said: set[str] = set()
        self._user_metrics: UserMetrics | None = None
        _hear_of_trainings()

    def __reduce__(self) -> tuple[type[Session], tuple[Options]]:
        return Session, (self.options,)

    def say_once(self, level: int, line: str) -> None:
        """Logs a line once, for all trainings of the callback."""
        if line not in self._said:
            self._said.add(line)
            logger.log(level, "%s", line)

    def meter(self) -> Meter:
        """The meter for the user's own metrics, of the given provider if there is one."""
        from akka_otel_callbacks.common.export.user_metrics import USER_SCOPE, UserMetrics

        if (given := self.options.handed.meter_provider) is not None:
            return given.get_meter(USER_SCOPE)
        if self._user_metrics is None:
            self._user_metrics = UserMetrics()
        return self._user_metrics.meter

    # Trainings

    def name(self, trainer: Trainer) -> None:
        self._named = weakref.ref(trainer)

    def named(self) -> Trainer | None:
        return self._named()

    def training(self, state: TrainerState) -> Training | None:
        """The training that an event's state belongs to."""
        for training in self._trainings:
            if training.state is state:
                self.latest = training
                return training
        run = running(state)  # somebody may have put a copy in the place of the trainer's state
        replaced = next((training for training in self._trainings if run is not None and training.run is run), None)
        if replaced is not None:
            replaced.state = state
        return replaced

    def loop(self, state: TrainerState) -> Loop[Any] | None:
        """The loop of the training that an event's state belongs to."""
        training = self.training(state)
        return None if training is None else training.loop

    def begin(
        self, trainer: Trainer | None, args: TrainingArguments, state: TrainerState, hears: Callable[[], bool]
    ) -> None:
        training = Training(self, trainer, state, hears)
        earlier = [other for other in self._trainings if other.trainer() is trainer]
        if earlier and earlier[-1].run is training.run:
            training = earlier.pop()
        for other in earlier:
            self.end(other)  # nobody saw its end
        if training not in self._trainings:
            self._trainings.append(training)
            if training.run is not None:
                training.run.when_ended(lambda error: self.end(training, error))
        training.begin(args, state)

    @guarded
    def end(self, training: Training, error: BaseException | None = None) -> None:
        if training in self._trainings:
            self._trainings.remove(training)
            self.latest = None
            training.end(error)

    def close(self) -> None:
        """Ends whatever is open."""
        for training in tuple(self._trainings):
            self.end(training)

    def telemetry(self) -> Telemetry | None:
        """The open telemetry. If several trainings are open, that of the latest."""
        return self._trainings[-1].telemetry if self._trainings else None

    # The run

    def _begin_run(self) -> None:
        self._pid = os.getpid()
        self._run_id = self.options.handed.run_id() or generated_run_id(names.RunEngine.TRL)
        self._attempt: Attempt | None = None
        self._begun = 0

    def begin_attempt(self, resumed: Attempt | None) -> Attempt:
        """The attempt of a training that begins now."""
        if self._pid != os.getpid():  # the attempts of a forked child are none of its parent's run
            self._begin_run()
        if self._begun or self._attempt is None or resumed is not None:
            self._attempt = self._next_attempt(resumed)
        self._begun += 1
        return self._attempt

    def attempt(self) -> Attempt:
        """The attempt of an evaluation outside of a training: that of the training before it, or else of the one to
        come. A forked child may evaluate what its parent trained."""
        if self._attempt is None:
            self._attempt = self._next_attempt(None)
        return self._attempt

    def _next_attempt(self, resumed: Attempt | None) -> Attempt:
        found = begin(
            os.environ,
            arguments=self.options.said,
            generated_id=self._run_id,
            is_published=partial(is_published, os.environ),
            resumed=resumed,
            before=self._begun,
        )
        self._run_id = found.run_id
        return found

    def identity(self, trainer: Trainer | None, args: TrainingArguments, attempt: Attempt) -> RunIdentity:
        said = {
            **self.options.said,
            names.ATTR_RUN_ID.name: attempt.run_id,
            names.ATTR_RUN_ATTEMPT.name: attempt.number,
        }
        engine = guarded(engine_attributes)(trainer, args, kind_of(trainer)) or {}  # without it the figures are as true
        return identify(os.environ, engine=engine, arguments=said, rank=args.process_index)

    def start(
        self,
        trainer: Trainer | None,
        args: TrainingArguments,
        attempt: Attempt,
        step_type: type[Step] | None,
        start_ns: int | None = None,
    ) -> Telemetry:
        """Opens the telemetry of an attempt. It began at `start_ns`, in Unix nanoseconds, or begins now."""
        handed = self.options.handed
        telemetry = Telemetry.start(
            self.identity(trainer, args, attempt),
            step_type,
            meter_provider=handed.meter_provider,
            tracer_provider=handed.tracer_provider,
            start_ns=start_ns,
            user_metrics=lambda: self._user_metrics,
        )
        for warning in handed.warnings(self.options.said):
            self.say_once(logging.WARNING, warning)
        return telemetry

    def gpus(self, trainer: Trainer | None, args: TrainingArguments) -> GpuHealth | None:
        """The GPUs to watch: those that were given, or else those that the trainer holds. None if there are none."""
        if self.options.handed.gpus is not None:
            return self.options.handed.gpus
        held = device_ids(trainer, args)
        return GpuHealth(held, off=not self.options.gpus) if held else None

    def count(self, trainer: Trainer | None, args: TrainingArguments) -> Efficiency | None:
        """The efficiency of a trainer's model, counted once: FSDP hides the model's shapes when it is prepared."""
        anew = getattr(trainer, "model_init", None) is not None
        counted: object = getattr(trainer, "model", None) if anew else trainer
        if self._counted is None or self._counted[0]() is not counted:
            known = kind_of(trainer) is not None
            found = guarded(efficiency)(trainer, args, self.options.peak_flops) if known else None
            self._counted = weakref.ref(counted) if counted is not None else lambda: None, found
        return self._counted[1]


@guarded
def _hear_of_trainings() -> None:
    """Taps `train` of all trainers, also of those that were made before the callback."""
    from transformers import Trainer

    if not switches.is_off(switches.EVERYTHING, os.environ):
        tap_train(Trainer)
