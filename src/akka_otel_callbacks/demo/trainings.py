"""Two real TRL trainings of the tiny model that learn something within seconds on a CPU."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from akka_otel_callbacks.demo import tiny

if TYPE_CHECKING:
    from transformers import Trainer, TrainerCallback


def plain_letters(completions: Sequence[str], **_: Any) -> list[float]:
    """The share of a completion's characters that are small letters or spaces."""
    return [sum(char.islower() or char == " " for char in text) / max(len(text), 1) for text in completions]


def real_words(completions: Sequence[str], **_: Any) -> list[float]:
    """The share of a completion's words that are words of the tiny vocabulary."""
    return [sum(word in tiny.WORDS for word in text.split()) / max(len(text.split()), 1) for text in completions]


def finishes(completion_ids: Sequence[Sequence[int]], **_: Any) -> list[float]:
    """1 for a completion that comes to its end, 0 for one that is cut off at the maximum length."""
    return [float(len(ids) < COMPLETION_LENGTH) for ids in completion_ids]


COMPLETION_LENGTH = 24
REWARDS: Mapping[Callable[..., list[float]], float] = {plain_letters: 0.4, real_words: 0.4, finishes: 0.2}


def grpo(steps: int, directory: Path, callbacks: Sequence[TrainerCallback]) -> Trainer:
    """GRPO with three weighted rewards: from random bytes to short lines of words in about 30 steps."""
    from trl import GRPOConfig, GRPOTrainer

    config = GRPOConfig(
        learning_rate=1e-2,
        per_device_train_batch_size=32,
        num_generations=8,
        max_completion_length=COMPLETION_LENGTH,
        beta=0.02,
        reward_weights=list(REWARDS.values()),
        **_settings(steps, directory),
    )
    return GRPOTrainer(
        model=tiny.save(directory / "tiny-qwen3"),
        args=config,
        reward_funcs=list(REWARDS),
        train_dataset=tiny.prompts(64),
        callbacks=list(callbacks),
    )


def sft(steps: int, directory: Path, callbacks: Sequence[TrainerCallback]) -> Trainer:
    """SFT on sentences of the tiny vocabulary, some of them too long, with a held-out split."""
    from trl import SFTConfig, SFTTrainer

    config = SFTConfig(
        learning_rate=5e-3,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=2,
        max_length=48,
        eval_strategy="steps",
        eval_steps=max(steps // 3, 1),
        **_settings(steps, directory),
    )
    return SFTTrainer(
        model=tiny.save(directory / "tiny-qwen3"),
        args=config,
        train_dataset=tiny.texts(256),
        eval_dataset=tiny.texts(32),
        callbacks=list(callbacks),
    )


TRAININGS: Mapping[str, Callable[[int, Path, Sequence[TrainerCallback]], Trainer]] = {
    "trl-grpo": grpo,
    "trl-sft": sft,
}


def _settings(steps: int, directory: Path) -> dict[str, Any]:
    import torch

    return {
        "output_dir": str(directory),
        "max_steps": steps,
        "logging_steps": 1,
        "lr_scheduler_type": "constant",
        "save_steps": max(steps // 2, 1),
        "bf16": False,
        "use_cpu": not torch.cuda.is_available(),
        "disable_tqdm": True,
        "report_to": [],
    }
