"""ms-swift, with our callback in its `callbacks_map`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.demo import tiny
from tests.hosts import expected
from tests.hosts.expected import check_grpo, check_sft
from tests.hosts.host import HERE, ROOT, STEPS, HostRun, model, needs, program, run, write

pytestmark = needs("swift")
LEARNING_RATE = 1e-3
SFT_LOGGED, RL_LOGGED = (
    {key: metric for key, metric in logged.items() if key != "learning_rate"}
    for logged in (expected.SFT_LOGGED, expected.RL_LOGGED)
)
SETTINGS = f"""
    --model_type qwen3 --template qwen3 --callbacks akka_otel rows --output_dir out --max_steps {STEPS}
    --logging_steps 1 --gradient_accumulation_steps 2 --learning_rate {LEARNING_RATE} --torch_dtype float32
    --report_to none --save_strategy no --load_from_cache_file false --split_dataset_ratio 0 --attn_impl eager
    --dataset_num_proc 1 --dataloader_num_workers 0 --use_cpu true --tuner_type full --max_length 128
""".split()
PLUGINS = [str(ROOT / "examples" / "hosts" / "akka_otel_swift.py"), str(HERE / "swift_plugin.py")]


def _train(folder: Path, command: str, dataset: str, *settings: str) -> HostRun:
    arguments = ["--model", model(folder), "--dataset", dataset, "--external_plugins", *PLUGINS, *SETTINGS, *settings]
    return run([program("swift"), *command.split(), *arguments], folder, USE_HF="1")


def test_sft(tmp_path: Path) -> None:
    chats = write(tmp_path / "chats.jsonl", list(tiny.texts(32, "messages")))
    trained = _train(tmp_path, "sft", chats, "--per_device_train_batch_size", "2")
    check_sft(trained, None, SFT_LOGGED)  # its trainer says nothing of a method
    _check_rates(trained, names.SFT_STEP_LEARNING_RATE)


def test_grpo(tmp_path: Path) -> None:
    rows = [{"messages": [{"role": "user", "content": row["prompt"]}]} for row in tiny.prompts(16)]
    settings = (
        "--rlhf_type grpo --reward_funcs letters --num_generations 4 --max_completion_length 8 --beta 0.04 "
        "--use_vllm false --per_device_train_batch_size 4"
    )
    trained = _train(tmp_path, "rlhf", write(tmp_path / "prompts.jsonl", rows), *settings.split())
    check_grpo(trained, RL_LOGGED)
    _check_rates(trained, names.RL_STEP_LEARNING_RATE)
    # It generates and scores in methods of its own: what is made of the rollouts is absent, and a line says so.
    assert trained.distribution(names.RL_ROLLOUT_REWARD, "total") is None
    assert not trained.published(names.RL_STEP_ROLLOUTS)
    assert "_calculate_rewards" in trained.said


def _check_rates(trained: HostRun, metric: Any) -> None:
    """ms-swift logs the rate of the next step, as the schedule has it by then."""
    assert trained.published(metric)[0] == LEARNING_RATE
    assert trained.published(metric)[1:] == pytest.approx(trained.logged("learning_rate")[:-1])
