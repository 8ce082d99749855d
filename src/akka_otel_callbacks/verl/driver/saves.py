"""The checkpoints that verl saves by itself: how long each save took, what it left, whether it failed.

Every trainer saves in a method of its own, and some are no module's (Ray keeps the class of an actor to itself). So the
trainer is found where it opens the run, and its class is changed there: in no other process, and in no other run.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from akka_otel_callbacks.common.checkpoints.engine_save import saved
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.patching.calls import Call, around
from akka_otel_callbacks.common.recording.pauses import CHECKPOINT
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary.names import CheckpointArtifactKind as ArtifactKind
from akka_otel_callbacks.common.vocabulary.names import SftStepPhase
from akka_otel_callbacks.common.vocabulary.step import Step
from akka_otel_callbacks.verl.callers import calling_objects
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.settings import is_rl, lora_rank
from akka_otel_callbacks.verl.state import STATE

METHODS = ("_save_checkpoint", "save_checkpoint")
"""The names of the methods that save: of reinforcement trainers, and of a supervised trainer's handler, which up to
verl 0.6 is the trainer itself."""
HANDLER = "ckpt_handler"
RESUMABLE = {"model", "optimizer", "extra"}
"""The contents of a checkpoint from which a training resumes. The schedule is in `extra`."""


class Save(NamedTuple):
    """A save that has begun. `step` is None if the trainer does not tell it."""

    step: float | None
    start_s: float


class Saves:
    """The saves of one run.

    Args:
        config: verl's configuration.
        telemetry: the run's.
        step_type: what the run reports.
    """

    def __init__(self, config: Any, telemetry: Telemetry, step_type: type[Step]) -> None:
        self._telemetry, self._step_type = telemetry, step_type
        self._kind = artifact_kind(config)
        self._is_later = is_asynchronous(config)
        fully_async = get(config, "async_training") is not None
        self._is_unseen = self._is_later and fully_async  # its trainer notes a checkpoint before that is written
        self._is_not_logged = fully_async or not is_rl(config)
        self._is_killed = fully_async
        self._saving = False
        self._waiting: list[Save] = []

    def listen(self) -> None:
        """Hears of saves until `close`. It must be called within the trainer's function that opens the run."""
        for owner, name in _savers():
            around(owner, name, _time)
        STATE.saves.append(self)

    @guarded
    def begin(self, trainer: object) -> Save | None:
        if self._saving:  # a class of the user's calls verl's
            return None
        self._saving = True
        self._telemetry.pauses.begin(CHECKPOINT)
        return Save(number(getattr(trainer, "global_steps", None)), time.perf_counter())

    @guarded
    def end(self, save: Save | None, error: BaseException | None) -> None:
        if save is None:
            return
        self._saving = False
        self._telemetry.pauses.end(CHECKPOINT)
        if self._is_later and error is None:
            if not self._is_unseen:
                self._waiting.append(save)
            return
        seconds = time.perf_counter() - save.start_s
        if self._is_not_logged and error is None:
            self._telemetry.capture(Timing(self._step_type, seconds))
        saved(self._telemetry, seconds, artifact_kind=self._kind, error=error)
        if self._is_killed:
            self._telemetry.flush(0)

    @guarded
    def noted(self, step: int) -> None:
        """verl has noted that the checkpoint of this step is whole. Asynchronous ones are written in their order."""
        now_s = time.perf_counter()
        for save in [save for save in self._waiting if save.step is not None and save.step <= step]:
            self._waiting.remove(save)
            saved(self._telemetry, now_s - save.start_s, artifact_kind=self._kind)

    def close(self) -> None:
        if self in STATE.saves:
            STATE.saves.remove(self)
        if self._waiting:
            logger.warning(
                "%d asynchronous saves were not seen to end, and are in no figure: verl's note of the latest "
                "checkpoint does not name them",
                len(self._waiting),
            )


class Timing(NamedTuple):
    """A capture: how long a save took that verl does not log."""

    step_type: type[Step]
    seconds: float

    def deliver(self, recorder: Recorder) -> None:
        recorder.record(self.step_type(timing_s={SftStepPhase.SAVE_CHECKPOINT: self.seconds}))


def artifact_kind(config: Any) -> str | None:
    """What the run's checkpoints hold. None for the weights of a whole model, from which nothing resumes."""
    at = "actor_rollout_ref.actor.checkpoint" if is_rl(config) else "checkpoint"
    contents = set(get(config, f"{at}.save_contents") or RESUMABLE)
    if contents >= RESUMABLE:
        return ArtifactKind.FULL_STATE
    only_adapter = get(config, f"{at}.save_lora_only") and lora_rank(config) and "hf_model" not in contents
    return ArtifactKind.ADAPTER if only_adapter else None


def is_asynchronous(config: Any) -> bool:
    """Whether a checkpoint is written while the training goes on."""
    return bool(get(config, "actor_rollout_ref.actor.checkpoint.async_save"))


def _savers() -> Iterator[tuple[type, str]]:
    """The class and the method that save for the trainer that is calling."""
    for trainer in calling_objects():
        for owner in (getattr(trainer, HANDLER, None), trainer):
            name = next((name for name in METHODS if callable(getattr(type(owner), name, None))), None)
            if name is not None:
                yield type(owner), name
                return


def _time(save: Call) -> Iterator[None]:
    """Times a save, for the run that is open at that moment."""
    if STATE.saves:
        run = STATE.saves[-1]
        begun = run.begin(save.owner)
        yield
        run.end(begun, save.error)
