"""Whole SFT trainings: every figure of every step against what the model was given and the trainer's own log."""

from __future__ import annotations

import time
from typing import Any

import pytest
import trl

from akka_otel_callbacks.common.vocabulary import names
from tests.support import tiny
from tests.trl.expected import Batches, check_sft_steps, evaluation_at
from tests.trl.runs import Run, exported_run, plain_run
from tests.trl.trainings import sft

MARKED_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n"
    "{% if message.role == 'assistant' %}{% generation %}{{ message.content }}<|im_end|>{% endgeneration %}\n"
    "{% else %}{{ message.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def variant(name: str, padded: bool = True, form: Any = "text", rows: int = 32, **settings: Any) -> Any:
    """One training by its settings, and whether its batches are padded."""
    trainer = settings.pop("trainer", {})
    return pytest.param(settings, {"train_dataset": tiny.texts(rows, form), **trainer}, padded, id=name)


@pytest.mark.parametrize(
    ("settings", "trainer", "padded"),
    [
        variant("padded"),
        variant("no-accumulation", gradient_accumulation_steps=1),
        variant("short-last-accumulation", rows=28, max_steps=5),
        variant("tokens-counted-by-transformers-too", include_num_input_tokens_seen="all"),
        variant("packed", padded=False, packing=True, max_steps=2),
        variant("packed-wrapped", padded=False, packing=True, packing_strategy="wrapped", max_steps=2),
        variant("padding-free", padded=False, padding_free=True, max_length=None),
        variant("prompt-completion", form="prompt-completion"),
        variant("conversations", form="messages"),
        variant(
            "assistant-only",
            form="messages",
            assistant_only_loss=True,
            trainer={"processing_class": tiny.tokenizer(MARKED_TEMPLATE)},
        ),
    ],
)
def test_every_figure_of_every_step(
    settings: dict[str, Any], trainer: dict[str, Any], padded: bool, tiny_model: str
) -> None:
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(sft(tiny_model, callbacks, trainer=trainer, **settings)),
        keep_trainer=True,
    )
    check_sft_steps(run, batches, padded=padded, total_rows=len(run.trainer.train_dataset))
    assert run.steps == list(range(1, settings.get("max_steps", 4) + 1))


@pytest.fixture(scope="module")
def logged_every_step(tiny_model: str) -> Run:
    """A training without telemetry that evaluates, saves and logs all of its steps."""
    return plain_run(lambda callbacks: sft(tiny_model, callbacks, **BUSY))


BUSY = {"max_steps": 7, "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 3}


@pytest.mark.parametrize(
    "logging",
    [{"logging_steps": 1}, {"logging_steps": 5}, {"logging_strategy": "no"}],
    ids=["every-step", "every-fifth-step", "never"],
)
def test_figures_do_not_depend_on_what_is_logged(
    logging: dict[str, Any], tiny_model: str, logged_every_step: Run
) -> None:
    batches = Batches()
    run = exported_run(lambda callbacks: batches.watch(sft(tiny_model, callbacks, **BUSY, **logging)))
    check_sft_steps(run, batches, rows={step: logged_every_step.row(step) for step in range(1, 8)})
    assert run.steps == [*range(1, 8)]
    for event, step in run.exports:
        assert of_the_step(run, step, event) == of_the_step(run, step, "step")


def of_the_step(run: Run, step: int, event: str) -> dict[str, Any]:
    """The gauges that nothing between two steps may change."""
    between = names.SFT_EVAL_LOSS.name, names.SFT_STEP_TIMING.name
    return {name: series for name, series in run.figures(step, event).items() if name not in between}


def test_the_latest_evaluation_stays_until_the_next(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_steps=4, eval_strategy="steps", eval_steps=2))
    second, fourth = evaluation_at(run, 2), evaluation_at(run, 4)
    assert second["loss"] != fourth["loss"]
    shown = [run.shown(names.SFT_EVAL_LOSS, step) for step in run.steps]
    assert shown == [None, None, second["loss"], second["loss"]]
    assert run.shown(names.SFT_EVAL_LOSS, 2, event="evaluate") == second["loss"]
    assert run.shown(names.SFT_EVAL_LOSS) == fourth["loss"]
    assert run.shown(names.SFT_STEP_TIMING, None, "eval") == fourth["runtime"]


def test_two_evaluation_sets(tiny_model: str) -> None:
    """With metrics of the user's own, whose names end as the trainer's own figures do."""
    sets = {
        "eval_dataset": {"near": tiny.texts(4), "far": tiny.texts(8, long_every=2)},
        "compute_metrics": lambda _: {"nll_runtime": 77.0, "nll_loss": 78.0},
    }
    run = exported_run(
        lambda callbacks: sft(tiny_model, callbacks, trainer=sets, max_steps=2, eval_strategy="steps", eval_steps=1)
    )
    for step in run.steps:
        row = next(row for at, row in reversed(run.rows) if at == step and "eval_far_loss" in row)
        assert run.shown(names.SFT_EVAL_LOSS, step, "far", event="evaluate") == row["eval_far_loss"]
        near = next(row for at, row in reversed(run.rows) if at == step and "eval_near_loss" in row)
        assert run.shown(names.SFT_EVAL_LOSS, step, "near", event="evaluate") == near["eval_near_loss"]
        assert run.shown(names.SFT_EVAL_LOSS, step, event="evaluate") is None
        assert run.shown(names.SFT_STEP_TIMING, step, "eval", event="evaluate") == row["eval_far_runtime"]
    assert [span.name for span in run.sink.spans()].count(names.SPAN_EVAL.name) == 4
    assert not [name for name in run.sink.names() if "far" in name or "near" in name]


def test_evaluation_before_the_first_step(tiny_model: str) -> None:
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(
            sft(tiny_model, callbacks, max_steps=2, eval_on_start=True, eval_strategy="steps", eval_steps=10)
        )
    )
    loss = evaluation_at(run, 0)["loss"]
    assert run.shown(names.SFT_EVAL_LOSS, 0, event="evaluate") == loss
    assert run.shown(names.SFT_STEP_COUNT, 0, event="evaluate") is None
    assert [run.shown(names.SFT_EVAL_LOSS, step) for step in run.steps] == [loss, loss]
    assert [run.shown(names.SFT_STEP_TOKENS, step) for step in run.steps] == [batches.tokens(1), batches.tokens(2)]


class Slow(trl.SFTTrainer):
    """A user's own trainer. It measures, from within, what happens beside the steps, and takes its time."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.measured: dict[str, list[float]] = {"input": [], "save_checkpoint": []}

    def _measure(self, phase: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        begin = time.perf_counter()
        result = call(*args, **kwargs)
        time.sleep(0.05)
        self.measured[phase].append(time.perf_counter() - begin)
        return result

    def get_batch_samples(self, *args: Any, **kwargs: Any) -> Any:
        return self._measure("input", super().get_batch_samples, *args, **kwargs)

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> Any:
        return self._measure("save_checkpoint", super()._save_checkpoint, *args, **kwargs)


def test_times_beside_the_steps(tiny_model: str) -> None:
    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(
            sft(tiny_model, callbacks, trainer_class=Slow, save_strategy="steps", save_steps=2, max_steps=4)
        ),
        protocol="grpc",
        keep_trainer=True,
    )
    check_sft_steps(run, batches)
    assert {point.resource[names.ATTR_RUN_METHOD.name] for point in run.points()} == {"SFT"}
    for step, measured in zip(run.steps, run.trainer.measured["input"], strict=True):
        assert measured <= run.shown(names.SFT_STEP_TIMING, step, "input") < measured + 0.05
    first, second = run.trainer.measured["save_checkpoint"]
    for step, measured in ((3, first), (4, first)):  # it stays until the next checkpoint
        assert measured <= run.shown(names.SFT_STEP_TIMING, step, "save_checkpoint") < measured + 0.05
    assert second <= run.shown(names.SFT_STEP_TIMING, 4, "save_checkpoint", event="save") < second + 0.05


class Diverges(trl.SFTTrainer):
    """Its loss is NaN in the second step."""

    def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
        loss = super().compute_loss(*args, **kwargs)
        return loss * float("nan") if self.model.training and self.state.global_step == 1 else loss


@pytest.mark.parametrize("nan_filter", [True, False])
def test_a_loss_that_is_not_finite_is_counted_not_shown(nan_filter: bool, tiny_model: str) -> None:
    run = exported_run(
        lambda callbacks: sft(
            tiny_model, callbacks, trainer_class=Diverges, max_steps=2, logging_nan_inf_filter=nan_filter
        )
    )
    watched = names.SFT_STEP_LOSS, names.SFT_STEP_GRAD_NORM
    assert [run.shown(names.TELEMETRY_NONFINITE, 1, metric.name) for metric in watched] == [0, 0]
    assert [run.shown(names.TELEMETRY_NONFINITE, 2, metric.name) for metric in watched] == [1, 1]
    assert None not in [run.shown(metric, 1) for metric in watched]
    assert [run.shown(metric, 2) for metric in watched] == [None, None]
    assert run.shown(names.SFT_STEP_TOKENS, 2) is not None


def test_lora(tiny_model: str) -> None:
    from peft import LoraConfig

    batches = Batches()
    run = exported_run(
        lambda callbacks: batches.watch(sft(tiny_model, callbacks, trainer={"peft_config": LoraConfig(r=5)}))
    )
    check_sft_steps(run, batches)
    assert {point.resource[names.ATTR_RUN_LORA_RANK.name] for point in run.points()} == {5}


def test_without_gradient_clipping(tiny_model: str) -> None:
    run = exported_run(lambda callbacks: sft(tiny_model, callbacks, max_grad_norm=0.0, max_steps=2))
    for step in run.steps:
        assert run.shown(names.SFT_STEP_GRAD_NORM, step) == run.row(step).get("grad_norm")
