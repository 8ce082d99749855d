"""Axolotl, with our plugin among its `plugins`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.demo import tiny
from tests.hosts.expected import check_grpo, check_rollouts, check_sft, check_tokens
from tests.hosts.host import STEPS, HostRun, model, needs, program, run, write

pytestmark = needs("axolotl")


def _train(folder: Path, **settings: Any) -> HostRun:
    config: dict[str, Any] = {
        "base_model": model(folder),
        "plugins": ["akka_otel_axolotl.AkkaOtelPlugin", "axolotl_plugin.RowsPlugin"],
        "output_dir": str(folder / "out"),
        "dataset_prepared_path": str(folder / "prepared"),
        "dataset_processes": 1,
        "sequence_len": 64,
        "gradient_accumulation_steps": 2,
        "max_steps": STEPS,
        "logging_steps": 1,
        "learning_rate": 1e-3,
        "optimizer": "adamw_torch",
        "lr_scheduler": "linear",
        "save_strategy": "no",
        "val_set_size": 0,
        "bf16": False,
        "fp16": False,
        "tf32": False,
        "flash_attention": False,
        "special_tokens": {"pad_token": tiny.PAD},
        **settings,
    }
    (folder / "config.yml").write_text(yaml.safe_dump(config))
    command = [program("axolotl"), "train", "config.yml", "--launcher", "python"]
    return run(command, folder, AXOLOTL_DO_NOT_TRACK="1")


def _dataset(path: str, **settings: Any) -> list[dict[str, Any]]:
    return [{"path": path, "ds_type": "json", **settings}]


def test_sft(tmp_path: Path) -> None:
    texts = write(tmp_path / "texts.jsonl", list(tiny.texts(32)))
    trained = _train(tmp_path, datasets=_dataset(texts, type="completion", field="text"), micro_batch_size=2)
    check_sft(trained, None)  # its trainer says nothing of a method, and its name is none
    check_tokens(trained, names.SFT_STEP_TOKENS, "tokens/trainable")


def test_grpo(tmp_path: Path) -> None:
    prompts = write(tmp_path / "prompts.jsonl", list(tiny.prompts(16)))
    trained = _train(
        tmp_path,
        rl="grpo",
        trl={
            "use_vllm": False,
            "reward_funcs": ["rows.letters"],
            "num_generations": 4,
            "max_completion_length": 8,
            "beta": 0.04,
        },
        datasets=_dataset(prompts, split="train", type="axolotl_plugin.prompts"),
        micro_batch_size=4,
    )
    check_grpo(trained)
    check_rollouts(trained)
    check_tokens(trained, names.RL_STEP_TOKENS)
