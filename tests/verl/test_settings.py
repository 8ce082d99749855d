"""What the identity says of a run, from verl's own default configurations and from small ones."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.settings import (
    devices,
    get,
    hyperparameters,
    max_completion_length,
    method,
    planned_steps,
    run_attributes,
    trainer_processes,
)

RL: dict[str, Any] = {
    "algorithm": {"adv_estimator": "grpo"},
    "data": {"max_response_length": 24, "train_files": "/data/a.parquet", "train_batch_size": 4, "seed": 1},
    "actor_rollout_ref": {
        "model": {"path": "Qwen/Qwen3-0.6B", "lora_rank": 8},
        "actor": {"optim": {"lr": 1e-6, "betas": [0.9, 0.999]}, "policy_loss": {"loss_mode": "vanilla"}},
        "rollout": {"n": 4, "nnodes": 0, "n_gpus_per_node": 8, "response_length": 24},
    },
    "trainer": {
        "project_name": "p",
        "experiment_name": "e",
        "logger": ["console", "akka_otel"],
        "nnodes": 2,
        "n_gpus_per_node": 8,
        "device": "cuda",
        "wandb_proxy": "http://user:secret@proxy",
    },
}
SFT: dict[str, Any] = {
    "model": {"path": "Qwen/Qwen3-0.6B", "lora_rank": 0},
    "optim": {"lr": 1e-5},
    "trainer": {"nnodes": 1, "n_gpus_per_node": 2, "device": "cuda"},
}


def changed(config: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    copy = deepcopy(config)
    *parents, last = path.split(".")
    target = copy
    for parent in parents:
        target = target.setdefault(parent, {})
    target[last] = value
    return copy


def sha(config: Any) -> str:
    return str(run_attributes(config)[names.ATTR_RUN_SETTINGS_SHA])


def test_a_reinforcement_run() -> None:
    attributes = run_attributes(RL)
    assert attributes | {names.ATTR_RUN_SETTINGS_SHA: None} == {
        names.ATTR_RUN_ENGINE: "verl",
        names.ATTR_RUN_METHOD: "GRPO",
        names.ATTR_RUN_NAME: "e",
        names.ATTR_RUN_BASE_MODEL: "Qwen/Qwen3-0.6B",
        names.ATTR_RUN_LEARNING_RATE: 1e-6,
        names.ATTR_RUN_LORA_RANK: 8,
        names.ATTR_RUN_GROUP_SIZE: 4,
        names.ATTR_RUN_SETTINGS_SHA: None,
    }


@pytest.mark.parametrize("name", ["/home/me/out", "s3://bucket/run", "", None])
def test_a_path_is_no_name_of_a_run(name: str | None) -> None:
    assert run_attributes(changed(RL, "trainer.experiment_name", name))[names.ATTR_RUN_NAME] is None


@pytest.mark.parametrize(
    ("steps", "trainer", "planned"),
    [
        (40, {"use_v1": False}, 40),
        (40, {"use_v1": True, "v1": {"trainer_mode": "sync", "sync": {}}}, 40),
        (
            40,
            {"use_v1": True, "v1": {"trainer_mode": "async", "async": {"parameter_sync_step": 4}}},
            10,
        ),
        (-1, {}, None),
        (None, {}, None),
        (0, {}, None),
    ],
)
def test_planned_steps(steps: int | None, trainer: dict[str, Any], planned: float | None) -> None:
    """As the trainers leave them in the configuration; of a supervised one, as it says itself."""
    config = {"actor_rollout_ref": {"actor": {"optim": {"total_training_steps": steps}}}, "trainer": trainer}
    assert planned_steps(config) == planned
    assert planned_steps({}, SimpleNamespace(total_training_steps=steps)) == (steps if steps and steps > 0 else None)


@pytest.mark.parametrize("config", [RL, SFT], ids=["rl", "sft"])
@pytest.mark.parametrize("key", ["path", "partial_pretrain"])
@pytest.mark.parametrize(
    "place",
    [
        "s3://key:S3CRET@bucket/models/Qwen3?X-Amz-Signature=S3CRET",
        "hdfs://S3CRET/user/me/Qwen3/",
        "/home/S3CRET/Qwen3",
        "~/S3CRET/Qwen3",
    ],
)
def test_of_a_model_only_its_name_is_published(config: dict[str, Any], key: str, place: str) -> None:
    model = "actor_rollout_ref.model" if config is RL else "model"
    attributes = run_attributes(changed(changed(config, f"{model}.path", None), f"{model}.{key}", place))
    assert attributes[names.ATTR_RUN_BASE_MODEL] == "Qwen3"
    assert "S3CRET" not in str(attributes)


def test_a_supervised_run() -> None:
    attributes = run_attributes(SFT)
    assert attributes[names.ATTR_RUN_METHOD] == "SFT"
    assert attributes[names.ATTR_RUN_LEARNING_RATE] == 1e-5
    assert attributes[names.ATTR_RUN_LORA_RANK] is None
    assert attributes[names.ATTR_RUN_GROUP_SIZE] is None


@pytest.mark.parametrize(
    ("estimator", "loss", "expected"),
    [
        ("gae", "vanilla", "PPO"),
        ("grpo", "vanilla", "GRPO"),
        ("grpo", "gspo", "GSPO"),
        ("rloo", "vanilla", "RLOO"),
        ("reinforce_plus_plus", "vanilla", "REINFORCE++"),
        ("my_estimator", "vanilla", "MY_ESTIMATOR"),
    ],
)
def test_methods(estimator: str, loss: str, expected: str) -> None:
    config = changed(RL, "algorithm.adv_estimator", estimator)
    assert method(changed(config, "actor_rollout_ref.actor.policy_loss.loss_mode", loss)) == expected


@pytest.mark.parametrize(
    "path",
    [
        "trainer.experiment_name",
        "trainer.logger",
        "trainer.wandb_proxy",
        "trainer.nnodes",
        "trainer.default_local_dir",
        "data.train_files",
        "data.seed",
        "actor_rollout_ref.model.path",
        "actor_rollout_ref.rollout.disable_log_stats",
        "actor_rollout_ref.actor.checkpoint",
        "ray_kwargs",
        "trainer.hf_token",
        "trainer.api_key",
        "data.password",
        "reward.reward_model.access_key",
        "reward.reward_model.apikey",
        "reward.sandbox_fusion.auth",
        "ray_init.address",
        "trainer.username",
        "actor_rollout_ref.model.custom_chat_template",
        "data.apply_chat_template_kwargs",
        "data.val_batch_size",
        "trainer.rollout_data_dir",
    ],
)
def test_where_it_runs_and_reports_does_not_change_the_hash(path: str) -> None:
    assert sha(changed(RL, path, "something else")) == sha(RL)
    assert "something else" not in str(hyperparameters(changed(RL, path, "something else")))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("actor_rollout_ref.actor.optim.lr", 2e-6),
        ("actor_rollout_ref.actor.optim.betas", [0.9, 0.95]),
        ("actor_rollout_ref.rollout.n", 8),
        ("data.train_batch_size", 8),
        ("algorithm.adv_estimator", "rloo"),
        ("actor_rollout_ref.model.lora_rank", 16),
    ],
)
def test_what_it_learns_from_changes_the_hash(path: str, value: Any) -> None:
    assert sha(changed(RL, path, value)) != sha(RL)


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (RL, 16),
        (SFT, 2),
        (changed(RL, "trainer.device", "cpu"), None),
        (changed(RL, "actor_rollout_ref.rollout.nnodes", 1), 24),
        (changed(RL, "rollout", {"nnodes": 1, "n_gpus_per_node": 4}), 20),
        (changed(RL, "reward.reward_model", {"enable_resource_pool": True, "nnodes": 1, "n_gpus_per_node": 2}), 18),
        (changed(RL, "reward.reward_model", {"enable_resource_pool": False, "nnodes": 1, "n_gpus_per_node": 2}), 16),
        ({}, None),
    ],
)
def test_devices(config: dict[str, Any], expected: int | None) -> None:
    assert devices(config) == expected


def test_torchrun_knows_its_processes_better_than_the_configuration() -> None:
    assert trainer_processes(SFT, {"WORLD_SIZE": "4"}) == 4
    assert trainer_processes(SFT, {}) == 2
    assert trainer_processes({}, {}) is None


def test_the_longest_completion() -> None:
    assert max_completion_length(RL) == 24
    assert max_completion_length(changed(RL, "actor_rollout_ref.rollout.response_length", None)) == 24
    assert max_completion_length(changed(RL, "actor_rollout_ref.rollout.response_length", 48)) == 48
    assert max_completion_length({}) is None


def test_a_path_that_leads_nowhere() -> None:
    assert get({"a": {"b": None}}, "a.b", 1) == 1
    assert get({"a": 5}, "a.b", 1) == 1
    assert get(None, "a", 1) == 1


@pytest.mark.parametrize("name", ["ppo_trainer", "ppo_megatron_trainer"])
def test_verls_own_defaults(name: str) -> None:
    verl = pytest.importorskip("verl", reason="verl is not installed in this environment")
    from omegaconf import OmegaConf

    loaded = OmegaConf.load(Path(verl.__file__).parent / "trainer" / "config" / f"_generated_{name}.yaml")
    loaded.actor_rollout_ref.actor.strategy = loaded.critic.strategy = "fsdp"
    config = OmegaConf.to_container(loaded, resolve=True)
    attributes = run_attributes(config)
    assert attributes[names.ATTR_RUN_METHOD] == "PPO"
    assert attributes[names.ATTR_RUN_GROUP_SIZE] == 1
    assert (max_completion_length(config), devices(config)) == (512, 8)
    kept = str(hyperparameters(config))
    assert "'clip_ratio_high': 0.2" in kept
    assert not any(word in kept for word in ("~/", "parquet", "console", "gsm8k", "/tmp"))
