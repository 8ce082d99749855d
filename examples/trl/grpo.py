"""GRPO with telemetry: python examples/trl/grpo.py [MODEL]

Without MODEL it trains a tiny model that is built in code, so that it runs anywhere; with one, such as
Qwen/Qwen3-0.6B, it trains that. Afterwards: akka-otel show akka-otel/<run id>
"""

import sys
import tempfile
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer

from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.trl import AkkaTelemetryCallback  # 1: the import


def brevity(completions, **kwargs):
    """Reward functions need no change: each becomes a term, named after its function."""
    return [1 / (1 + len(text.split())) for text in completions]


def real_words(completions, **kwargs):
    return [sum(word in tiny.WORDS for word in text.split()) / (len(text.split()) or 1) for text in completions]


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=sys.argv[1] if len(sys.argv) > 1 else tiny.save(Path(directory) / "tiny-qwen3"),
            args=GRPOConfig(
                output_dir=f"{directory}/checkpoints",
                max_steps=10,
                learning_rate=5e-3 if len(sys.argv) == 1 else 1e-6,
                per_device_train_batch_size=8,
                num_generations=8,
                max_completion_length=24,
                reward_weights=[0.3, 0.7],
                bf16=False,
                report_to="none",
            ),
            reward_funcs=[brevity, real_words],
            train_dataset=tiny.prompts(64),
            callbacks=[AkkaTelemetryCallback()],  # 2: the callback, which needs no settings
        )
        trainer.train()  # 3: as ever. OTEL_EXPORTER_OTLP_ENDPOINT sends the figures to your collector


if __name__ == "__main__":
    main()
