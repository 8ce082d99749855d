"""Real trainings of a tiny model, and a book of the rollouts that their reward functions saw."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import trl
from packaging.version import Version
from transformers import Trainer, TrainerCallback

from tests.support import tiny

TRL = Version(trl.__version__)
OUTPUT = Path("output")
"""Set by the fixture of conftest.py."""
_folders = itertools.count()

COMPLETION_LENGTH = 10
GROUP = 4


def folder() -> str:
    return str(OUTPUT / f"training-{next(_folders)}")


def save_model(directory: Path, **options: Any) -> str:
    """As the demo's, with an EOS that is likely enough for some completions to end and others to be cut off."""
    tokenizer = tiny.tokenizer()
    model = tiny.model(tokenizer, **options)
    with torch.no_grad():
        model.get_input_embeddings().weight[tokenizer.eos_token_id] *= 30
    tokenizer.save_pretrained(directory)
    model.save_pretrained(directory)
    return str(directory)


# -- reward functions


@dataclass(frozen=True)
class Scoring:
    """One call of one reward function."""

    function: str
    step: int
    training: bool
    scores: list[float | None]
    prompts: list[Any]
    completion_ids: list[list[int]]


@dataclass(frozen=True)
class Update:
    """One micro-batch of an update: what TRL appended for its log, and what that is a mean over."""

    values: dict[str, float]
    tokens: int
    rows: int


Score = Callable[..., Sequence["float | None"]]


class Book:
    """Reward functions that remember every call and a trainer that remembers every micro-batch: what a test computes a
    step's figures from."""

    def __init__(self) -> None:
        self.trainer: Trainer | None = None
        self.scorings: list[Scoring] = []
        self.updates: dict[int, list[Update]] = {}

    def recorded(self, score: Score) -> Score:
        """The function under its own name."""

        def function(prompts: Any, completions: Any, completion_ids: Any, **columns: Any) -> Any:
            scores = list(score(completions=completions, completion_ids=completion_ids, **columns))
            trainer = self.trainer
            assert trainer is not None
            self.scorings.append(
                Scoring(
                    score.__name__,
                    trainer.state.global_step + 1,
                    trainer.model.training,
                    scores,
                    list(prompts),
                    [list(ids) for ids in completion_ids],
                )
            )
            return scores

        function.__name__ = score.__name__
        return function

    def watching(self, trainer_class: type[Trainer]) -> type[Trainer]:
        """The class, of the same name, with micro-batches noted."""
        book = self

        def compute_loss(trainer: Any, model: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            lists = getattr(trainer, "_metrics", {}).get("train", {})
            before = {key: len(values) for key, values in lists.items()}
            loss = trainer_class.compute_loss(trainer, model, inputs, *args, **kwargs)
            if trainer.model.training:
                mask = inputs["completion_mask"] * inputs.get("tool_mask", 1)
                new = {key: values[-1] for key, values in lists.items() if len(values) > before.get(key, 0)}
                updates = book.updates.setdefault(trainer.state.global_step + 1, [])
                updates.append(Update(new, int(mask.sum()), len(mask)))
            return loss

        return type(trainer_class.__name__, (trainer_class,), {"compute_loss": compute_loss})

    def forget(self) -> None:
        self.scorings.clear()
        self.updates.clear()

    def of_step(self, step: int) -> list[Scoring]:
        return [scoring for scoring in self.scorings if scoring.training and scoring.step == step]


def letters(completions: Sequence[str], **_: Any) -> list[float]:
    """Many different values, some of them zero."""
    return [sum(char in "aeiou" for char in text) / 4 for text in map(text_of, completions)]


def some(answer: Sequence[int], completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float | None]:
    """None for a third of the prompts."""
    return [None if row % 3 == 0 else len(ids) % 3 / 2 for row, ids in zip(answer, completion_ids, strict=True)]


def penalty(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """Zero or negative."""
    return [-0.3 * (len(set(ids)) % 3) for ids in completion_ids]


def text_of(completion: Any) -> str:
    return completion if isinstance(completion, str) else "".join(turn["content"] or "" for turn in completion)


REWARDS: dict[Score, float] = {letters: 1.0, some: 0.5, penalty: 2.0}


# -- trainers


def common(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings of every training here, with some of them replaced."""
    return {
        "output_dir": folder(),
        "per_device_train_batch_size": 4,
        "gradient_accumulation_steps": 2,
        "learning_rate": 1e-3,
        "max_steps": 4,
        "logging_steps": 1,
        "save_strategy": "no",
        "report_to": [],
        "use_cpu": True,
        "bf16": False,
        "disable_tqdm": True,
        "gradient_checkpointing": False,
        "seed": 1,
        **settings,
    }


def online(
    kind: str,
    model: str,
    callbacks: Sequence[TrainerCallback],
    *,
    book: Book | None = None,
    rewards: dict[Score, float] | None = None,
    trainer: dict[str, Any] | None = None,
    trainer_class: type[Trainer] | None = None,
    **settings: Any,
) -> Trainer:
    """GRPO or RLOO (`kind`) of the tiny model, two groups of four a generation by default.

    Args:
        kind: `GRPO` or `RLOO`.
        model: a model's folder.
        callbacks: the trainer's.
        book: where the reward functions write what they see.
        rewards: weights by function; the order counts.
        trainer: more arguments of the trainer.
        trainer_class: a class other than TRL's own.
        settings: of the configuration.
    """
    book, rewards = book or Book(), rewards or REWARDS
    config = getattr(trl, f"{kind}Config")(
        **common(
            {
                "num_generations": GROUP,
                "max_completion_length": COMPLETION_LENGTH,
                "beta": 0.0,
                "reward_weights": list(rewards.values()),
                **settings,
            }
        )
    )
    arguments: dict[str, Any] = {
        "model": model,
        "args": config,
        "reward_funcs": [book.recorded(score) for score in rewards],
        "train_dataset": tiny.prompts(16),
        "eval_dataset": tiny.prompts(2),
        "callbacks": list(callbacks),
        **(trainer or {}),
    }
    book.trainer = book.watching(trainer_class or getattr(trl, f"{kind}Trainer"))(**arguments)
    return book.trainer


def sft(
    model: str,
    callbacks: Sequence[TrainerCallback],
    *,
    trainer: dict[str, Any] | None = None,
    trainer_class: type[Trainer] | None = None,
    **settings: Any,
) -> Trainer:
    """SFT of the tiny model on 32 rows, a quarter of them longer than the maximum."""
    arguments: dict[str, Any] = {
        "model": model,
        "args": trl.SFTConfig(**common({"max_length": 32, **settings})),
        "train_dataset": tiny.texts(32),
        "eval_dataset": tiny.texts(8),
        "callbacks": list(callbacks),
        **(trainer or {}),
    }
    return (trainer_class or trl.SFTTrainer)(**arguments)
