"""Turns log calls into steps, on the translator's thread. A log call is not a step: verl spreads one over several."""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.memory import set_memory
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.idle import idle
from akka_otel_callbacks.verl.driver.job_memory import MemoryOfStep
from akka_otel_callbacks.verl.driver.limits import Limits, limits
from akka_otel_callbacks.verl.driver.rollout_figures import mean_per_token, set_figures
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.driver.unusable import REWARD_KL, unusable_keys
from akka_otel_callbacks.verl.driver.vocabulary import (
    RL_STEP_KEY,
    SFT_STEP_KEY,
    Logged,
    Row,
    eval_rewards,
    rl_step,
    row_of,
    sft_step,
)
from akka_otel_callbacks.verl.settings import is_rl, trainer_processes


@dataclass(slots=True)
class LogCall:
    """One call of `Tracking.log` and what else was seen since the one before."""

    translation: Translation
    logged: Logged
    number: int
    rollouts: Sequence[Rollouts] = ()
    update_s: float | None = None
    """Wall time of a supervised update in seconds, without its input."""
    memory: MemoryOfStep | None = None
    """What filled the devices in this step."""

    @property
    def values_held(self) -> int:
        return sum(batch.values_held for batch in self.rollouts)

    def row(self) -> Row:
        """The numbers that the call logs, read anew each time."""
        return row_of(self.logged)

    def deliver(self, recorder: Recorder) -> None:
        step = self.translation.step_of(self)
        if step is not None:
            set_memory(step, self.memory() if self.memory is not None else None)
            recorder.record(step)


class Translation(Protocol):
    step_type: ClassVar[type[Step]]
    step_key: ClassVar[str]

    def step_of(self, call: LogCall) -> Step | None: ...


class RLTranslation:
    """The translation of a reinforcement trainer's log: v0, v1 or disaggregated."""

    step_type: ClassVar[type[Step]] = RLStep
    step_key: ClassVar[str] = RL_STEP_KEY

    def __init__(self, config: Any, verl_version: tuple[int, ...]) -> None:
        self._config = config
        self._unusable = unusable_keys(config, verl_version)
        self._verl_version = verl_version
        logs_next = not (0, 4) <= verl_version < (0, 8) or get(config, "trainer.use_legacy_worker_impl") == "disable"
        self._learning_rate = LearningRate(logs_next)
        updates = updates_per_step(config)
        self._has_several_rates = updates > 1
        self._parts = 1 if get(config, "async_training") is not None else updates
        """How often verl takes the policy's entropy of a batch from which it computes its figures."""
        self._early_number: int | None = None
        self._early: Row = {}

    def step_of(self, call: LogCall) -> RLStep | None:
        """The step that a call completes. fully_async logs its rollout servers' part of a step and a validation in
        calls of their own, before the step itself; they are kept for that step."""
        logged = call.row()
        row = {**self._early, **logged} if call.number == self._early_number else logged
        if RL_STEP_KEY not in row:
            self._early_number, self._early = call.number, row
            rewards = eval_rewards(logged)  # at once: a validation before the training has no step to wait for
            return RLStep(eval_reward=rewards) if rewards else None
        self._early_number, self._early = None, {}
        kl = mean_per_token(part for batch in call.rollouts for part in batch.kl)
        step = rl_step(row, self._unusable if kl is None else self._unusable | {REWARD_KL})
        step.kl = kl if step.kl is None else step.kl
        step.number = call.number
        step.learning_rate = None if self._has_several_rates else self._learning_rate.applied(step.learning_rate)
        step.idle = idle(row, self._config)
        set_figures(step, call.rollouts, self._limits)
        entropy = self._entropy(call.rollouts)
        step.entropy = step.entropy if entropy is None else entropy
        _leave_out_padding(step, call.rollouts)
        return step

    @functools.cached_property
    def _limits(self) -> Limits:
        """The limits of completions. They are read when they are first needed, on the translator's thread, because the
        model's own limits are in a file."""
        return limits(self._config, self._verl_version)

    def _entropy(self, batches: Sequence[Rollouts]) -> float | None:
        """The policy's entropy. None if the trainer aggregated more than entropies, as a user's own trainer may."""
        if any(len(batch.entropy) > self._parts for batch in batches):
            return None
        return mean_per_token(part for batch in batches for part in batch.entropy)


class SFTTranslation:
    """The translation of a supervised trainer's log, under torchrun or Ray."""

    step_type: ClassVar[type[Step]] = SFTStep
    step_key: ClassVar[str] = SFT_STEP_KEY

    def __init__(self, config: Any) -> None:
        self._processes = trainer_processes(config)
        self._learning_rate = LearningRate(logs_next=True)

    def step_of(self, call: LogCall) -> SFTStep:
        """A validation's row has no number of its own: it amends the step before it."""
        row = call.row()
        step = sft_step(row)
        if SFT_STEP_KEY not in row:
            return step
        step.number = call.number
        step.learning_rate = self._learning_rate.applied(step.learning_rate)
        if call.update_s is not None:
            step.duration_s = call.update_s
        step.timing_s = {names.SftStepPhase.STEP: step.duration_s}
        if step.tokens and step.duration_s and self._processes:
            step.throughput = step.tokens / step.duration_s / self._processes
        return step


@dataclass(slots=True)
class LearningRate:
    """The rate that a step used. Up to 0.3 and from 0.8 (supervised trainers: always) verl advances the schedule before
    it reads the rate, so that a step logs the rate of the next one."""

    logs_next: bool
    _next: float | None = None

    def applied(self, logged: float | None) -> float | None:
        if not self.logs_next or logged is None:  # a step without an update of the policy has no rate
            return logged
        applied, self._next = self._next, logged
        return applied


def updates_per_step(config: Any) -> float:
    """How often the schedule of learning rates advances in a step. If it advances more than once, verl logs the mean of
    the rates (fully_async) or the rate after the last of them (`separate_async`). Neither is the step's."""
    mode = get(config, "trainer.v1.trainer_mode")
    if get(config, "async_training") is not None:
        updates = get(config, "async_training.trigger_parameter_sync_step")
    else:
        updates = get(config, f"trainer.v1.{mode}.parameter_sync_step") if get(config, "trainer.use_v1", True) else None
    return number(updates) or 1


def translation_for(config: Any, verl_version: str) -> Translation:
    return RLTranslation(config, _release(verl_version)) if is_rl(config) else SFTTranslation(config)


def _release(version: str) -> tuple[int, ...]:
    """`0.9.1.dev0` as (0, 9, 1). An unknown version counts as the newest."""
    parts = [part for part in version.split(".")[:3] if part.isdigit()]
    return tuple(map(int, parts)) or (sys.maxsize,)


def _leave_out_padding(step: RLStep, batches: Sequence[Rollouts]) -> None:
    """The v1 trainers pad a batch with rows to a multiple of the devices, and verl counts their tokens."""
    tokens = [batch.tokens for batch in batches]
    if not tokens or None in tokens or not step.tokens:
        return
    own = sum(count for count in tokens if count is not None)
    if step.throughput is not None:
        step.throughput *= own / step.tokens
    step.tokens = own
