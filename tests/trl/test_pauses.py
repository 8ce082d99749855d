"""While a real trainer evaluates or saves, an export says so, and before and after it that steps are made."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trl
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.support.otlp_sink import otlp_sink
from tests.trl.runs import FLUSH_S, environment
from tests.trl.trainings import online, sft

CAUSE = names.ATTR_JOB_PAUSE_CAUSE.name
STEPS = {"evaluating": 0, "checkpointing": 0}
EVALUATION = {"evaluating": 1, "checkpointing": 0}
CHECKPOINT = {"evaluating": 0, "checkpointing": 1}


class Watch(TrainerCallback):
    """Exports in the middle of what a trainer does, and notes what the export says."""

    def __init__(self, sink: Any) -> None:
        self.ours = AkkaTelemetryCallback()
        self.seen: list[tuple[str, dict[str, float]]] = []
        self._sink = sink

    def note(self, when: str) -> None:
        assert self.ours.telemetry.flush(FLUSH_S)
        points = [point for point in self._sink.last_export() if point.name == names.JOB_STEPS_PAUSED.name]
        self.seen.append((when, {point.attributes[CAUSE]: point.value for point in points}))

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.note("step")


def watched(trainer_class: type, watch: Watch, failing: bool = False) -> type:
    class Watched(trainer_class):
        def prediction_step(self, *args: Any, **kwargs: Any) -> Any:
            watch.note("evaluation")
            if failing:
                raise RuntimeError("this evaluation fails")
            return super().prediction_step(*args, **kwargs)

        def _save(self, *args: Any, **kwargs: Any) -> None:
            watch.note("checkpoint")
            super()._save(*args, **kwargs)

    return Watched


PLAN: dict[str, Any] = {
    "max_steps": 2, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps", "save_steps": 1
}  # fmt: skip


@pytest.mark.parametrize(
    ("make", "trainer_class"), [(sft, trl.SFTTrainer), (partial(online, "GRPO"), trl.GRPOTrainer)], ids=["SFT", "GRPO"]
)
def test_an_export_says_what_the_job_does_meanwhile(make: Any, trainer_class: type, tiny_model: str) -> None:
    with otlp_sink() as sink, environment({"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http}):
        watch = Watch(sink)
        make(tiny_model, [watch.ours, watch], trainer_class=watched(trainer_class, watch), **PLAN).train()
    said = {"step": STEPS, "evaluation": EVALUATION, "checkpoint": CHECKPOINT}
    assert [(when, said[when]) for when, _ in watch.seen] == watch.seen
    assert {when for when, _ in watch.seen} == said.keys()
    assert watch.seen[-1][0] != "step"


def test_an_evaluation_that_fails_is_over(tiny_model: str) -> None:
    """Somebody catches its exception and the training goes on."""

    class Caught(trl.SFTTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
            with pytest.raises(RuntimeError):
                super().evaluate(*args, **kwargs)
            return {}

    with otlp_sink() as sink, environment({"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http}):
        watch = Watch(sink)
        plan = {**PLAN, "save_strategy": "no"}
        sft(tiny_model, [watch.ours, watch], trainer_class=watched(Caught, watch, failing=True), **plan).train()
    assert [(when, EVALUATION if when == "evaluation" else STEPS) for when, _ in watch.seen] == watch.seen
    assert [when for when, _ in watch.seen[:3]] == ["step", "evaluation", "step"]
