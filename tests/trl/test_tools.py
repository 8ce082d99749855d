"""A GRPO training whose model calls tools: what it wrote itself and what the tools answered are kept apart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import trl
from packaging.version import Version

from akka_otel_callbacks.common.vocabulary import names
from tests.support import tiny
from tests.trl.runs import exported_run
from tests.trl.trainings import TRL, Book, online

pytestmark = pytest.mark.skipif(Version("1.0") > TRL, reason=f"TRL {TRL} cannot call tools")

CALL = '<tool_call>\n{"name": "double", "arguments": {"a": %s}}\n</tool_call><|im_end|>'
GENERATIONS = [
    [CALL % 3, "hill<|im_end|>", CALL % -1, "lake water<|im_end|>"],  # the tool refuses what is negative
    ["sun<|im_end|>", "sky", CALL % 5, "on<|im_end|>"],
]
ANSWER = "yes the sun<|im_end|>"


def double(a: int) -> int:
    """
    Doubles a number.

    Args:
        a: The number.

    Returns:
        Twice the number.
    """
    if a < 0:
        raise ValueError("negative")
    return 2 * a


class Scripted(trl.GRPOTrainer):
    """Writes the scripted turns instead of the model's."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.prompt_tokens: list[int] = []

    def _generate_single_turn(self, prompt_ids: list[list[int]], *args: Any, **kwargs: Any) -> Any:
        if len(prompt_ids) == 4:
            texts = GENERATIONS[len(self.prompt_tokens) % 2]
            self.prompt_tokens.append(sum(map(len, prompt_ids)))
        else:  # after the tools answered
            texts = [ANSWER] * len(prompt_ids)
        return [self.processing_class(text)["input_ids"] for text in texts], None


def anything(completions: list[Any], **_: Any) -> list[float]:
    return [float(index % 3) for index in range(len(completions))]


def test_tools(tmp_path: Path) -> None:
    model = tiny.save_with_tools(tmp_path)
    run = exported_run(
        lambda callbacks: online(
            "GRPO",
            model,
            callbacks,
            book=Book(),
            rewards={anything: 1.0},
            trainer={"tools": [double], "train_dataset": tiny.prompts(8, conversational=True)},
            trainer_class=Scripted,
            max_completion_length=400,
            steps_per_generation=1,
            max_steps=2,
        ),
        keep_trainer=True,
    )
    tokenizer = run.trainer.processing_class
    written = [
        len(tokenizer(text)["input_ids"]) + (len(tokenizer(ANSWER)["input_ids"]) if "tool_call" in text else 0)
        for generation in GENERATIONS
        for text in generation
    ]
    for step in run.steps:
        assert run.shown(names.RL_STEP_TOOL_CALLS, step) == pytest.approx(3 / 8)
        assert run.shown(names.RL_STEP_TOOL_FAILURE_RATIO, step) == pytest.approx(1 / 3)
        assert run.shown(names.RL_STEP_COMPLETION_LENGTH, step) == pytest.approx(sum(written) / 8)
        assert run.shown(names.RL_STEP_COMPLETION_LENGTH_MAX, step) == max(written)
        lengths = run.histogram(names.RL_ROLLOUT_COMPLETION_LENGTH, step)
        assert lengths is not None
        assert (lengths.count, lengths.sum) == (8 * step, sum(written) * step)
        assert (lengths.min, lengths.max) == (min(written), max(written))
        assert run.shown(names.RL_STEP_TOKENS, step) == sum(written) + sum(
            run.trainer.prompt_tokens[2 * step - 2 : 2 * step]
        )
    row = run.row(1)
    assert row["tools/call_frequency"] == pytest.approx(3 / 8), "the script is not what the trainer saw"
