"""GRPO with a rule and a model as a judge: python examples/trl/judge.py BASE_URL JUDGE [MODEL]

BASE_URL is an OpenAI-compatible endpoint, such as http://localhost:8000/v1 of a vLLM server, and JUDGE its model; the
key is OPENAI_API_KEY. Without MODEL it trains a tiny model that is built in code.
"""

import sys
import tempfile
from pathlib import Path

from trl import GRPOConfig, GRPOTrainer

from akka_otel_callbacks.demo import tiny
from akka_otel_callbacks.graders import GraderFailure, Judge, graded
from akka_otel_callbacks.trl import AkkaTelemetryCallback

PROMPT = """Rate the answer from 0 to 1. Reply with the number alone.
Question: {prompt}
Answer: {completion}"""


@graded(term="rule:brevity.py")
def brevity(completion: str) -> float:
    """Scores a single row, of which every call is timed. It says so where it has no score."""
    if not completion.strip():
        raise GraderFailure("ungradable")
    return 1 / (1 + len(completion.split()))


def main() -> None:
    base_url, judge, *model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as directory:
        trainer = GRPOTrainer(
            model=model[0] if model else tiny.save(Path(directory) / "tiny-qwen3"),
            args=GRPOConfig(
                output_dir=f"{directory}/checkpoints",
                max_steps=5,
                per_device_train_batch_size=8,
                num_generations=8,
                max_completion_length=24,
                reward_weights=[0.2, 0.8],
                bf16=False,
                report_to="none",
            ),
            reward_funcs=[brevity, Judge(judge, base_url=base_url, prompt=PROMPT, temperature=0)],
            train_dataset=tiny.prompts(64),
            callbacks=[AkkaTelemetryCallback()],
        )
        trainer.train()


if __name__ == "__main__":
    main()
