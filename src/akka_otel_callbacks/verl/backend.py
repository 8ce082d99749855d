"""What receives verl's log calls, in the one process that logs."""

from __future__ import annotations

import atexit
import sys
from typing import Any

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.board import NO_ATTRIBUTES
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.verl import environment, worker
from akka_otel_callbacks.verl.gathering import Gatherer
from akka_otel_callbacks.verl.inbox import INBOX
from akka_otel_callbacks.verl.settings import devices, get, is_rl
from akka_otel_callbacks.verl.sft import UpdateClock, find_trainer
from akka_otel_callbacks.verl.translation import LogCall, translation_for
from akka_otel_callbacks.verl.vocabulary import RL_STEP_KEY


class Backend:
    """Takes verl's log calls on the trainer's thread; everything else happens on the exporter's.

    verl stops when a backend raises, so every entry is guarded. It may finish a backend, forget it, or kill its
    process.
    """

    def __init__(self, config: Any) -> None:
        verl = sys.modules.get("verl")
        self._translation = translation_for(config, getattr(verl, "__version__", ""))
        self._clock = UpdateClock()
        self._memory = Gatherer(config)
        self._finished = False
        self._is_killed = get(config, "async_training") is not None  # fully_async ends its actor with SIGKILL
        self._telemetry = Telemetry.start(environment.identity(config), self._translation.step_type)
        if self._telemetry.recording:
            self._watch(config)
        atexit.register(self.finish)  # before the telemetry's own exit, so that workers can still be reached

    @guarded
    def log(self, data: Any, step: int) -> None:
        row = dict(data)
        if self._translation.step_key not in row:
            self._telemetry.capture(LogCall(self._translation, row, int(step)))
            return
        memory = self._memory.gather(row) if self._telemetry.recording else None
        rollouts = INBOX.take(number(row.get(RL_STEP_KEY)))
        call = LogCall(self._translation, row, int(step), rollouts, self._clock.read(), memory)
        self._telemetry.capture(call, step=True)
        if self._is_killed:
            self._telemetry.flush(0)

    @guarded
    def finish(self, error: BaseException | None = None) -> None:
        """Ends the run's telemetry. Finishing twice is finishing once."""
        if self._finished:
            return
        self._finished = True
        atexit.unregister(self.finish)
        INBOX.listening = False
        worker.flush_workers()
        self._telemetry.close(error)
        environment.forget()

    @guarded
    def _watch(self, config: Any) -> None:
        count = devices(config)
        if count is not None:
            self._telemetry.observe(names.JOB_DEVICES, lambda: ((count, NO_ATTRIBUTES),))
        if is_rl(config):
            INBOX.listening = True
        elif (trainer := find_trainer()) is not None:
            self._clock.watch(trainer)
