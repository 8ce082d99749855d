"""Trains a tiny model and publishes its checkpoints while it trains.

python examples/checkpoints/train.py --to /tmp/published
python examples/checkpoints/train.py --to s3://bucket/checkpoints --endpoint-url http://127.0.0.1:5000 --process
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from pathlib import Path

from checkpoint_publisher.catalog import Catalog
from checkpoint_publisher.options import add_options, options_of, store_of
from checkpoint_publisher.publisher import Publisher
from checkpoint_publisher.staging import Staging
from checkpoint_publisher.training import InProcess, Publishing, StagesCheckpoints
from transformers import TrainerCallback
from trl import SFTConfig, SFTTrainer

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.trl import AkkaTelemetryCallback


def trainer(run_id: str, folder: Path, steps: int) -> tuple[SFTTrainer, AkkaTelemetryCallback]:
    tokenizer = tiny.tokenizer()
    telemetry = AkkaTelemetryCallback(run_id=run_id)
    config = SFTConfig(
        output_dir=str(folder),
        max_steps=steps,
        save_steps=1,
        save_total_limit=1,
        per_device_train_batch_size=2,
        max_length=32,
        report_to=[],
        use_cpu=True,
        bf16=False,
        gradient_checkpointing=False,
    )
    made = SFTTrainer(
        model=tiny.model(tokenizer),
        args=config,
        train_dataset=tiny.texts(16),
        processing_class=tokenizer,
        callbacks=[telemetry],
    )
    return made, telemetry


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--run-id", default="published-run")
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--process", action="store_true", help="publish from a process instead of a thread")
    chosen = parser.parse_args()
    staging, catalog = Staging(chosen.work / "staging"), Catalog(chosen.work / "catalog.db")
    training, telemetry = trainer(chosen.run_id, chosen.work / "training", chosen.steps)
    with ExitStack() as ends:
        publishing: Publishing
        if chosen.process:
            publishing = InProcess(options_of(chosen))
        else:
            publisher = Publisher(staging, store_of(chosen), catalog)
            ends.enter_context(checkpoints.pending(publisher.pending))
            ends.enter_context(checkpoints.reporting())  # the last snapshots are published after the training
            publishing = publisher
        callback: TrainerCallback = StagesCheckpoints(telemetry, staging, catalog, publishing)
        training.add_callback(callback)
        ends.callback(publishing.close)
        training.train()


if __name__ == "__main__":
    main()
