"""SFT with telemetry: python examples/trl/sft.py [MODEL]

Without MODEL it trains a tiny model that is built in code, so that it runs anywhere; with one, such as
Qwen/Qwen3-0.6B, it trains that. Afterwards: akka-otel show akka-otel/<run id>
"""

import sys
import tempfile
from pathlib import Path

from trl import SFTConfig, SFTTrainer

from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.trl import AkkaTelemetryCallback  # 1: the import


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        trainer = SFTTrainer(
            model=sys.argv[1] if len(sys.argv) > 1 else tiny.save(Path(directory) / "tiny-qwen3"),
            args=SFTConfig(
                output_dir=f"{directory}/checkpoints",
                max_steps=10,
                learning_rate=5e-3 if len(sys.argv) == 1 else 1e-5,
                per_device_train_batch_size=8,
                max_length=48,
                eval_strategy="steps",
                eval_steps=5,
                bf16=False,
                report_to="none",
            ),
            train_dataset=tiny.texts(256),
            eval_dataset=tiny.texts(32),
            callbacks=[AkkaTelemetryCallback()],  # 2: the callback, which needs no settings
        )
        trainer.train()  # 3: as ever. OTEL_EXPORTER_OTLP_ENDPOINT sends the figures to your collector


if __name__ == "__main__":
    main()
