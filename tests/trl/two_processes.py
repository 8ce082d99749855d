"""Run by torchrun in each of two processes: GRPO and SFT, without and with telemetry. Writes what became of them.

Arguments: the folder to write to, and the model's.
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
from tests.trl import trainings
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


def main(folder: Path, model: str) -> None:
    for name in COLLECTIVES:
        setattr(torch.distributed, name, counted(name))
    trainings.OUTPUT = folder
    found = {
        kind: {
            way: trained(kind, model, callbacks)
            for way, callbacks in (("plain", []), ("watched", [AkkaTelemetryCallback()]))
        }
        for kind in ("GRPO", "SFT")
    }
    rank = torch.distributed.get_rank()
    (folder / f"rank{rank}.json").write_text(json.dumps(found))
    torch.distributed.destroy_process_group()


def trained(kind: str, model: str, callbacks: list[TrainerCallback]) -> dict[str, Any]:
    calls.clear()
    seed_everything()
    rows, book = Rows(), trainings.Book()
    trainer = make(kind, model, [*callbacks, rows], book)
    trainer.train()
    return {
        "rows": rows.rows,
        "collectives": dict(calls),
        "parameters": sum(float(tensor.double().abs().sum()) for tensor in trainer.model.state_dict().values()),
        "scorings": [
            [scoring.function, scoring.step, scoring.scores, [len(ids) for ids in scoring.completion_ids]]
            for scoring in book.scorings
        ],
    }


def make(kind: str, model: str, callbacks: list[TrainerCallback], book: trainings.Book) -> Trainer:
    settings = {"max_steps": 2, "logging_steps": 1, "save_strategy": "steps", "save_steps": 2}
    if kind == "SFT":
        return trainings.sft(model, callbacks, **settings)
    return trainings.online("GRPO", model, callbacks, book=book, **settings)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
