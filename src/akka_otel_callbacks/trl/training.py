"""One training of one trainer, with its open telemetry, from its first event to its end."""

from __future__ import annotations

import itertools
import logging
import weakref
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.companion import Companion
from akka_otel_callbacks.common.recording.translator import StepFailed
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.run.identity import RunIdentity
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.source import Constant
from akka_otel_callbacks.trl.accelerators import companion, publish_count, publish_gpus, tell_companions
from akka_otel_callbacks.trl.attempts import Origin, remember
from akka_otel_callbacks.trl.evaluation import report, watch_evaluations
from akka_otel_callbacks.trl.kinds import RL, SFT, kind_of
from akka_otel_callbacks.trl.loop import Loop, Restart
from akka_otel_callbacks.trl.rl import RLLoop
from akka_otel_callbacks.trl.running import Running, running
from akka_otel_callbacks.trl.saves import METHOD as SAVE_METHOD
from akka_otel_callbacks.trl.saves import watch_saves
from akka_otel_callbacks.trl.sft import SFTLoop
from akka_otel_callbacks.trl.spans import Spans
from akka_otel_callbacks.trl.taps import Listener

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

    from akka_otel_callbacks.trl.session import Session

LOOPS: Mapping[str | None, type[Loop[Any]]] = {RL: RLLoop, SFT: SFTLoop, None: SFTLoop}
NEVER = -1
"""Stands for the step before one whose figures failed, so that the next one begins anew."""
LOOKS_USED = 2
"""After so many steps, a trainer has used every method that it uses."""
_trainings = itertools.count()
"""The trainings of this process. All ranks begin the same ones, so the number tells them apart."""
PRUNED = frozenset({"TrialPruned"})
"""Exceptions by which a search ends a trial that it has seen enough of."""


class Training:
    """What a callback has open for one call of a trainer's `train`.

    Args:
        session: the callback's.
        trainer: None if it could not be found.
        state: the trainer's state, which every event hands over.
        hears: whether the callback is still one of the trainer's.
    """

    def __init__(
        self, session: Session, trainer: Trainer | None, state: TrainerState, hears: Callable[[], bool]
    ) -> None:
        self.state = state
        self.run: Running | None = running(state)
        self.trainer = weakref.ref(trainer) if trainer is not None else lambda: None
        self.telemetry: Telemetry | None = None
        self.loop: Loop[Any] | None = None
        self._session, self._hears = session, hears
        self._kind = kind_of(trainer)
        self._companion: Companion | None = None
        self._spans: Spans | None = None
        self._listener = Listener(hears)
        self._step = 0
        self._origin = Origin()
        self._begun = self._in_step = False
        self._steps = 0

    # Events

    def begin(self, args: TrainingArguments, state: TrainerState) -> None:
        """The first event of the training. It comes again with `auto_find_batch_size`, which begins anew without an
        end."""
        self.state = state
        self._end_loop()
        first, self._begun = not self._begun, True
        if not state.is_world_process_zero:
            if first:
                self._open_companion(args)
            return
        if first:
            self._open(args)
        if self.telemetry is not None:
            remember(self.state, attempt_of(self.telemetry))
            self.telemetry.capture(Restart())
            self._watch(args, self.telemetry)

    def restored(self) -> None:
        """Describes the checkpoint that the training resumes from. Its step is known at the first event."""
        if self.telemetry is not None:
            described = self._origin.described(attempt_of(self.telemetry), self.state.global_step)
            self.telemetry.trace.describe(described)

    def begin_step(self, args: TrainingArguments) -> None:
        if self.telemetry is not None and self.state.global_step != self._step:
            self._end_loop()  # the callback was away, or failed: what it read last is of an earlier step
            self._in_step = True  # whatever fails now, a step ends
            self._watch(args, self.telemetry)
        self._in_step = True
        if self.loop is not None:
            self.loop.begin_step()
            if self._spans is not None:
                self._spans.begin_step(self.loop.step)

    def end_step(self) -> None:
        """Reports a step, if its begin was seen. A callback that joins within a step sees only its end."""
        if not self._in_step:
            return
        self._in_step, self._step = False, self.state.global_step
        if self.telemetry is None or not self.telemetry.recording:
            return
        reported = False
        try:
            reported = self.loop is not None and self.loop.end_step(self.state)
        finally:
            if not reported:
                self._step = NEVER
                self.telemetry.capture(StepFailed(), step=True)
        if self.loop is not None and reported:
            if self._spans is not None:
                self._spans.end_step(self.loop.step, self._step)
            self._steps += 1
            if self._steps == LOOKS_USED:
                self._tell_unused(self.loop)

    def evaluated(self, metrics: Mapping[str, Any]) -> None:
        if self.telemetry is not None:
            report(self.telemetry, self._kind, metrics)

    def end(self, error: BaseException | None) -> None:
        self._end_loop()
        telemetry, self.telemetry = self.telemetry, None
        companion, self._companion = self._companion, None
        if error is not None and any(kind.__name__ in PRUNED for kind in type(error).__mro__):
            error = None
        if self._spans is not None:
            self._spans.cut(error)
        if telemetry is not None:
            telemetry.close(error)
        if companion is not None:
            companion.close()

    # What is open

    def _open(self, args: TrainingArguments) -> None:
        session, trainer = self._session, self.trainer()
        self._origin = Origin.of(self.run, args, self.state)
        resumed = self._origin.attempt()
        attempt = session.begin_attempt(resumed)
        if resumed is not None and resumed.run_id == attempt.run_id:
            self._origin.note(attempt)
        step_type = LOOPS[self._kind].step_type
        self.telemetry = session.start(trainer, args, attempt, step_type)
        if self.telemetry.detail:
            self._spans = Spans(self.telemetry, step_type, trainer)
        if self.telemetry.recording:
            self._publish_accelerators(self.telemetry, trainer, args)
            if self.state.max_steps > 0:
                self.telemetry.publish(Constant(names.JOB_STEPS_PLANNED, self.state.max_steps))
        if args.world_size > 1:
            tell_companions(attempt, next(_trainings), self.telemetry.trace.variables())

    def _open_companion(self, args: TrainingArguments) -> None:
        session, trainer, training = self._session, self.trainer(), next(_trainings)
        if (gpus := session.gpus(trainer, args)) is not None:
            self._companion = companion(
                lambda attempt: session.identity(trainer, args, attempt), gpus, args.process_index, training
            )

    def _publish_accelerators(self, telemetry: Telemetry, trainer: Trainer | None, args: TrainingArguments) -> None:
        publish_count(telemetry, trainer, args)
        if (gpus := self._session.gpus(trainer, args)) is not None:
            publish_gpus(telemetry, gpus, args.process_index if args.world_size > 1 else None)
            if gpus is not self._session.options.handed.gpus:  # those end with their owner
                telemetry.when_closed(gpus.stop)

    def _watch(self, args: TrainingArguments, telemetry: Telemetry) -> None:
        trainer, self._step, self._steps = self.trainer(), self.state.global_step, 0
        self._listener = Listener(self._hears) if self._spans is None else self._spans.listener(self._hears)
        watch_evaluations(self._listener, trainer, telemetry)
        saves = watch_saves(self._listener, trainer, args, telemetry, LOOPS[self._kind].step_type)
        if not telemetry.recording:
            return
        self.loop = LOOPS[self._kind](
            trainer,
            args,
            self.state,
            listener=self._listener,
            emit=telemetry.capture,
            efficiency=self._session.count(trainer, args),
        )
        if not saves:
            self.loop.missing.append(SAVE_METHOD)
        name = type(trainer).__name__ if trainer is not None else "a trainer that could not be found"
        if self._kind is None:
            line = f"{name} is neither GRPO, RLOO nor SFT: only what it shares with SFT is published"
            self._session.say_once(logging.INFO, line)
        elif self.loop.missing:
            self._session.say_once(
                logging.WARNING,
                f"{name} of TRL {_trl_version()} has no {', '.join(self.loop.missing)}: the figures of these methods "
                "come from the log, at its interval, or are absent",
            )

    def _end_loop(self) -> None:
        self._listener.end()
        if self.loop is not None:
            self.loop.close()
        self.loop, self._in_step = None, False

    def _tell_unused(self, loop: Loop[Any]) -> None:
        unused = loop.unused(self.state).items()
        if unused:
            named = "; ".join(f"{source} ({', '.join(metric.name for metric in gives)})" for source, gives in unused)
            self._session.say_once(
                logging.WARNING,
                f"{type(self.trainer()).__name__} never calls the source of some figures. These come from the log, "
                f"at its interval, or are absent: {named}",
            )


def attempt_of(telemetry: Telemetry) -> Attempt:
    said = RunIdentity(telemetry.identity.attributes)
    return Attempt(said.run_id, said.attempt)


def _trl_version() -> str:
    try:
        return version("trl")
    except PackageNotFoundError:
        return "(not installed)"
