"""Publishes an evaluation: within a training by the training's telemetry, outside of one by its own."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.common.clock import now_ns
from akka_otel_callbacks.common.recording.pauses import EVALUATION
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import NO_ATTRIBUTES, Attributes
from akka_otel_callbacks.common.vocabulary.source import Constant
from akka_otel_callbacks.trl.kinds import RL, kind_of
from akka_otel_callbacks.trl.loop import EVAL, TranslatedStep
from akka_otel_callbacks.trl.taps import Arguments, Listener
from akka_otel_callbacks.trl.vocabulary import (
    eval_loss,
    eval_reward,
    eval_runtime_s,
    eval_set,
    rl_evaluation,
    sft_evaluation,
)

if TYPE_CHECKING:
    from transformers import Trainer, TrainerState, TrainingArguments

    from akka_otel_callbacks.trl.session import Session


def with_logged(metrics: Mapping[str, Any], state: TrainerState) -> Mapping[str, Any]:
    """The log row of this evaluation: TRL adds its own figures, such as the reward, only there."""
    row: Mapping[str, Any] = state.log_history[-1] if state.log_history else {}
    return row if eval_runtime_s(row) is not None and eval_runtime_s(row) == eval_runtime_s(metrics) else metrics


def report(telemetry: Telemetry, kind: str | None, metrics: Mapping[str, Any]) -> None:
    """Publishes an evaluation of a training that is under way."""
    telemetry.capture(TranslatedStep(rl_evaluation(metrics) if kind == RL else sft_evaluation(metrics)))
    _span(telemetry, eval_runtime_s(metrics))


def publish(session: Session, trainer: Trainer | None, args: TrainingArguments, metrics: Mapping[str, Any]) -> None:
    """Publishes an evaluation outside of a training. Its telemetry is open only until it is sent, because nobody says
    which evaluation is the last. It has no counters: they would begin anew beside those of the training."""
    seconds, name = eval_runtime_s(metrics), eval_set(metrics)
    attributes = NO_ATTRIBUTES if name is None else {names.ATTR_EVAL_DATASET.name: name}
    end_ns = now_ns()
    start_ns = None if seconds is None else _start_ns(end_ns, seconds)
    telemetry = session.start(trainer, args, session.attempt(), None, start_ns)
    try:
        if kind_of(trainer) == RL:
            _publish(telemetry, names.RL_EVAL_REWARD, eval_reward(metrics), attributes)
        else:
            _publish(telemetry, names.SFT_EVAL_LOSS, eval_loss(metrics), attributes)
            _publish(telemetry, names.SFT_STEP_TIMING, seconds, {names.ATTR_SFT_STEP_PHASE.name: EVAL})
        if start_ns is not None:
            telemetry.span(names.SPAN_EVAL, start_ns, end_ns)
    finally:
        telemetry.close()


def _publish(telemetry: Telemetry, metric: Metric, value: float | None, attributes: Attributes) -> None:
    if value is None:
        return
    if math.isfinite(value):
        telemetry.publish(Constant(metric, value, attributes))
    else:
        counted = {names.ATTR_TELEMETRY_METRIC.name: metric.name}
        telemetry.publish(Constant(names.TELEMETRY_NONFINITE, 1, counted))


def watch_evaluations(listener: Listener, trainer: Trainer | None, telemetry: Telemetry) -> None:
    """Follows evaluations that begin, end and fail. No event tells when one begins or fails."""

    def begin() -> None:
        telemetry.pauses.begin(EVALUATION)

    def ended(result: Any, arguments: Arguments, seconds: float) -> None:
        telemetry.pauses.end(EVALUATION)

    def failed(error: BaseException, seconds: float) -> None:
        telemetry.pauses.end(EVALUATION)
        _span(telemetry, seconds, error)

    listener.after(trainer, "evaluation_loop", ended, before=begin, failed=failed)


def _span(telemetry: Telemetry, seconds: float | None, error: BaseException | None = None) -> None:
    """Writes the span of an evaluation that ended right now."""
    if seconds is not None:
        end_ns = now_ns()
        telemetry.span(names.SPAN_EVAL, _start_ns(end_ns, seconds), end_ns, error=error)


def _start_ns(end_ns: int, seconds: float) -> int:
    return end_ns - int(seconds * 1e9)
