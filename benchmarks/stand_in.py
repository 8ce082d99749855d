"""One GRPO step as TRL fires it, on a trainer whose own work costs nothing: what is left is the telemetry."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from transformers import DefaultFlowCallback, Trainer, TrainerCallback, TrainerControl, TrainerState
from trl import GRPOConfig

ROLLOUTS, GROUP, MICRO_BATCHES, TOKENS = 32, 8, 4, 256
TERMS = ("accuracy", "format", "brevity")
PER_GENERATION = [
    "num_tokens completions/mean_length completions/min_length completions/max_length completions/clipped_ratio "
    "completions/mean_terminated_length completions/min_terminated_length completions/max_terminated_length "
    "reward reward_std frac_reward_zero_std step_time".split(),
    [f"rewards/{term}/{figure}" for term in TERMS for figure in ("mean", "std")],
]
PER_MICRO_BATCH = (
    "entropy clip_ratio/low_mean clip_ratio/low_min clip_ratio/high_mean clip_ratio/high_max clip_ratio/region_mean"
).split()
LOG_KEYS = 28


class BaseTrainer(Trainer):
    """Whose step TRL's own one extends, so that a tap of it is met twice."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        return self.compute_loss(model, self._batch)


class GRPOTrainer(BaseTrainer):
    """As TRL's, as far as a callback can see, with answers prepared beforehand."""

    def __init__(self, output_dir: Path, rollouts: int = ROLLOUTS, terms: Sequence[str] = TERMS) -> None:
        self.rollouts = rollouts
        self.args = GRPOConfig(
            output_dir=str(output_dir), use_cpu=True, report_to="none", num_generations=GROUP, bf16=False
        )
        self.model = torch.nn.Linear(8, 8)
        self.model.train()
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-6)
        self.state, self.control = TrainerState(is_world_process_zero=True), TrainerControl()
        self.reward_func_names, self.reward_weights = list(terms), torch.ones(len(terms))
        self.num_generations, self.current_gradient_accumulation_steps = GROUP, MICRO_BATCHES
        self._metrics: dict[str, Any] = {"train": defaultdict(list), "eval": defaultdict(list)}
        ids = [[7] * random.randint(1, TOKENS) for _ in range(rollouts)]
        self._generation = (ids, ids, None, ids, torch.tensor(rollouts * TOKENS), None, {})
        self._scores = torch.tensor([[random.random() for _ in terms] for _ in range(rollouts)])
        self._norm, self._loss = torch.tensor(1.5), torch.tensor(0.01)
        self._batch = {
            "prompt_ids": torch.zeros(rollouts // MICRO_BATCHES, 64, dtype=torch.long),
            "completion_ids": torch.zeros(rollouts // MICRO_BATCHES, TOKENS, dtype=torch.long),
            "completion_mask": torch.ones(rollouts // MICRO_BATCHES, TOKENS, dtype=torch.long),
        }
        self.row = dict.fromkeys([key for keys in PER_GENERATION for key in keys] + PER_MICRO_BATCH, 0.25)
        self.row |= {"loss": 0.01, "grad_norm": 1.5, "learning_rate": 1e-6, "epoch": 0.5}
        assert len(self.row) == LOG_KEYS

    def train(self) -> None: ...

    def _generate(self, prompts: Any) -> Any:
        return self._generation

    def _calculate_rewards(self, inputs: Any, prompts: Any, completions: Any, completion_ids: Any) -> torch.Tensor:
        return self._scores

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> torch.Tensor:
        return super(type(self), self).training_step(model, inputs, num_items_in_batch)

    def compute_loss(self, model: Any, inputs: Any) -> torch.Tensor:
        return self._loss

    def _get_grad_norm(self, model: Any, grad_norm: Any = None) -> torch.Tensor:
        return self._norm


def own_class() -> type[GRPOTrainer]:
    """The class once more, shared with nobody: a logger that taps its methods must cost the other loggers nothing."""
    return _copied(GRPOTrainer, _copied(BaseTrainer, Trainer))


def _copied(kind: type[Any], base: type[Any]) -> type[Any]:
    body = {name: value for name, value in vars(kind).items() if name not in ("__dict__", "__weakref__")}
    return type(kind.__name__, (base,), body)


def begin(trainer: GRPOTrainer, callbacks: list[TrainerCallback]) -> None:
    trainer.callback_handler = SimpleNamespace(callbacks=[DefaultFlowCallback(), *callbacks])
    for callback in callbacks:
        callback.on_train_begin(trainer.args, trainer.state, trainer.control, **_handed(trainer))


def step(trainer: GRPOTrainer, callbacks: list[TrainerCallback]) -> None:
    """Everything that happens between two steps of one optimizer step each, in TRL's order, logged every step."""
    args, state, control, handed = trainer.args, trainer.state, trainer.control, _handed(trainer)
    buffers = trainer._metrics["train"]

    for callback in callbacks:
        callback.on_step_begin(args, state, control, **handed)
    ids = trainer._generate(None)[1]
    trainer._calculate_rewards(None, None, None, ids)
    state.num_input_tokens_seen += trainer.rollouts * TOKENS
    for keys in PER_GENERATION:
        for key in keys:
            buffers[key].append(0.25)
    for micro_batch in range(MICRO_BATCHES):
        trainer.training_step(trainer.model, None)
        for key in PER_MICRO_BATCH:
            buffers[key].append(0.25)
        if micro_batch < MICRO_BATCHES - 1:
            for callback in callbacks:
                callback.on_substep_end(args, state, control, **handed)
    trainer._get_grad_norm(trainer.model)
    for callback in callbacks:
        callback.on_pre_optimizer_step(args, state, control, **handed)
    for callback in callbacks:
        callback.on_optimizer_step(args, state, control, **handed)
    state.global_step += 1
    for callback in callbacks:
        callback.on_step_end(args, state, control, **handed)
    for callback in callbacks:
        callback.on_log(args, state, control, logs=trainer.row, **handed)
    buffers.clear()


def _handed(trainer: GRPOTrainer) -> dict[str, Any]:
    return {"model": trainer.model, "optimizer": trainer.optimizer, "processing_class": None, "lr_scheduler": None}
