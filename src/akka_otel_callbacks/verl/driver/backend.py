"""What receives verl's log calls, in the one process that logs."""

from __future__ import annotations

import atexit
import os
import sys
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger, show_infos
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.translator import StepFailed
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.source import Constant
from akka_otel_callbacks.verl import run
from akka_otel_callbacks.verl.attempts import ASYNCHRONOUS_LOOK_S, LOOK_S, Keeper
from akka_otel_callbacks.verl.callers import calling_trainer
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver import update_clock, validation
from akka_otel_callbacks.verl.driver.job_memory import JobMemory
from akka_otel_callbacks.verl.driver.logged_validation import Validations
from akka_otel_callbacks.verl.driver.saves import Saves, is_asynchronous
from akka_otel_callbacks.verl.driver.spans import Spans
from akka_otel_callbacks.verl.driver.translation import LogCall, translation_for
from akka_otel_callbacks.verl.driver.unseen import Unseen
from akka_otel_callbacks.verl.driver.vocabulary import RL_STEP_KEY
from akka_otel_callbacks.verl.driver.worker_groups import flush_workers
from akka_otel_callbacks.verl.settings import devices, is_rl, planned_steps
from akka_otel_callbacks.verl.state import STATE


class Backend:
    """Takes verl's log calls on the trainer's thread. Everything else happens on the exporter's threads.

    verl stops when a backend raises, so every entry is guarded. verl may finish a backend, forget it, or kill its
    process.
    """

    def __init__(self, config: Any) -> None:
        verl = sys.modules.get("verl")
        self._translation = translation_for(config, getattr(verl, "__version__", ""))
        self._memory = JobMemory(config)
        self._unseen = Unseen(config)
        self._finished = False
        self._pid = os.getpid()
        self._is_killed = get(config, "async_training") is not None  # fully_async ends its actor with SIGKILL
        show_infos()  # verl sets the root logger to warnings
        step_type = self._translation.step_type
        self._telemetry = Telemetry.start(run.identity(config), step_type, job=run.job_span())
        self._spans = Spans(self._telemetry, step_type) if self._telemetry.detail else None
        self._saves = Saves(config, self._telemetry, step_type)
        self._validations = Validations(self._telemetry)
        look_s = ASYNCHRONOUS_LOOK_S if is_asynchronous(config) else LOOK_S
        describe = guarded(self._telemetry.trace.describe)
        self._checkpoints = Keeper(config, run.attempt(config), look_s, self._saves.noted, describe)
        guarded(self._saves.listen)()
        if self._telemetry.recording:
            self._listen(config)
        if self._telemetry.recording or self._telemetry.trace.has_job:
            guarded(self._validations.listen)(calling_trainer(update_clock.FIRST_CALL))
            guarded(validation.listen)(calling_trainer(validation.WAIT))
            self._checkpoints.start()
        atexit.register(self.finish)  # before the telemetry's own exit, so that workers can still be reached

    def __deepcopy__(self, memo: Any) -> Backend:
        """A copied trainer logs to the same run."""
        return self

    def __reduce__(self) -> tuple[type[Elsewhere], tuple[()]]:
        """Ray pickles the trainers that it is handed. The run stays with the process that has it."""
        return Elsewhere, ()

    @guarded
    def log(self, data: Any, step: int) -> None:
        logged = dict(data)
        validated = self._validations.logged(logged)
        if self._translation.step_key not in logged:
            self._telemetry.capture(LogCall(self._translation, logged, int(step)))
            if validated and self._is_killed:
                self._telemetry.flush(0)
            return
        try:
            call = self._captured(logged, step)
        except Exception:
            self._telemetry.capture(StepFailed(), step=True)
            raise
        self._telemetry.capture(call, step=True)
        if self._spans is not None:
            self._spans.logged(logged, call.number, call.update_s)
        if self._is_killed:
            self._telemetry.flush(0)

    def _captured(self, logged: dict[str, Any], step: int) -> LogCall:
        """What was logged at a step's end, with what was seen of the step."""
        memory = self._memory.ask(logged) if self._telemetry.recording else None
        rollouts = STATE.inbox.take(number(logged.get(RL_STEP_KEY)))
        if self._telemetry.recording:
            self._unseen.check(logged, rollouts)
        return LogCall(self._translation, logged, int(step), rollouts, update_clock.end_update(), memory)

    @guarded
    def finish(self, error: BaseException | None = None) -> None:
        """Ends the run's telemetry. Finishing twice is finishing once."""
        if self._finished or os.getpid() != self._pid:  # a forked child is not the run's end
            return
        self._finished = True
        atexit.unregister(self.finish)
        STATE.inbox.listening = False
        try:
            self._checkpoints.close()
            self._saves.close()
            flush_workers()
        finally:  # a person may interrupt the wait, and the run ends all the same
            self._end(error)

    def _end(self, error: BaseException | None) -> None:
        if self._spans is not None:
            self._spans.close(error)
        self._validations.close(error)
        try:
            self._telemetry.close(error)
        finally:
            run.end()

    @guarded
    def _listen(self, config: Any) -> None:
        trainer = None
        if is_rl(config):
            STATE.inbox.listening = True
        elif (trainer := calling_trainer(update_clock.FIRST_CALL)) is not None:
            guarded(update_clock.install)(type(trainer))
        known = {names.JOB_DEVICES: devices(config), names.JOB_STEPS_PLANNED: planned_steps(config, trainer)}
        for metric, value in known.items():
            if value is not None:
                self._telemetry.publish(Constant(metric, value))


class Elsewhere:
    """What a pickled backend becomes where it is unpickled. It publishes nothing, and says so once."""

    def __init__(self) -> None:
        self._said = False

    @guarded
    def log(self, data: Any, step: int) -> None:
        if not self._said:
            self._said = True
            logger.warning(
                "verl's Tracking was pickled. What is logged to the copy is not published. Make one in the process "
                "that trains"
            )

    def finish(self, error: BaseException | None = None) -> None: ...
