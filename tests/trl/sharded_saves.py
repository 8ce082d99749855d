"""Run by torchrun in each of two processes: SFT with FSDP2, of which each process saves a shard of its own.

Arguments: the folder to write to, and the model's.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch.distributed

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.trl import sharded, trainings

SHARDED = "SHARDED_STATE_DICT"


def main(folder: Path, model: str) -> None:
    trainings.OUTPUT = folder
    sharded.SETTINGS["FSDP_STATE_DICT_TYPE"] = SHARDED
    sharded.allow()
    arguments = {**sharded.TRAINER, "fsdp_config": {**sharded.TRAINER["fsdp_config"], "state_dict_type": SHARDED}}
    callbacks = [AkkaTelemetryCallback()]
    trainings.sft(model, callbacks, max_steps=2, save_strategy="steps", save_steps=1, **arguments).train()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
