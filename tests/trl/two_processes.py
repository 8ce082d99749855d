"""Run by torchrun in each of two processes: GRPO and SFT, without and with telemetry. Writes what became of them.

Arguments: the folder to write to, the model's, and `replicated` (DDP) or `sharded` (FSDP2).
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed
from transformers import Trainer, TrainerCallback

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.trl import losses, sharded, trainings
from tests.trl.runs import Rows, seed_everything

COLLECTIVES = (
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather_object",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter_object_list",
)
calls: Counter[str] = Counter()


def counted(name: str) -> Callable[..., Any]:
    call = getattr(torch.distributed, name)

    def collective(*args: Any, **kwargs: Any) -> Any:
        calls[name] += 1
        return call(*args, **kwargs)

    return collective


def main(folder: Path, model: str, form: str) -> None:
    for name in COLLECTIVES:
        setattr(torch.distributed, name, counted(name))
    trainings.OUTPUT = folder
    settings: dict[str, Any] = {}
    if form == "sharded":
        sharded.allow()
        settings = sharded.TRAINER
    found: dict[str, Any] = {
        kind: {
            way: trained(kind, model, callbacks, settings)
            for way, callbacks in (("plain", []), ("watched", [AkkaTelemetryCallback()]))
        }
        for kind in ("GRPO", "SFT")
    }
    cases = losses.CASES if form == "replicated" else losses.CASES[:1]
    found["losses"] = [losses.trained(case, model, settings) for case in cases]
    rank = torch.distributed.get_rank()
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def trained(kind: str, model: str, callbacks: list[TrainerCallback], more: dict[str, Any]) -> dict[str, Any]:
    calls.clear()
    seed_everything()
    rows, book = Rows(), trainings.Book()
    trainer = make(kind, model, [*callbacks, rows], book, more)
    trainer.train()
    return {
        "rows": rows.rows,
        "collectives": dict(calls),
        "class": type(trainer.model).__name__,
        "parameters": sum(float(own(tensor).double().abs().sum()) for tensor in trainer.model.state_dict().values()),
        "scorings": [
            [scoring.function, scoring.step, scoring.scores, [len(ids) for ids in scoring.completion_ids]]
            for scoring in book.scorings
        ],
    }


def own(tensor: Any) -> torch.Tensor:
    """This process's shard."""
    return tensor.to_local() if hasattr(tensor, "to_local") else tensor  # type: ignore[no-any-return]


def make(
    kind: str, model: str, callbacks: list[TrainerCallback], book: trainings.Book, more: dict[str, Any]
) -> Trainer:
    settings = {"max_steps": 2, "logging_steps": 1, **(more or {"save_strategy": "steps", "save_steps": 2})}
    if kind == "SFT":
        return trainings.sft(model, callbacks, **settings)
    return trainings.online("GRPO", model, callbacks, book=book, **settings)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
