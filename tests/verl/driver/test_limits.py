"""What ends a completion, as the configuration and the model say it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.verl.driver.limits import Limits, limits


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({}, Limits()),
        ({"rollout": {"response_length": 24, "max_model_len": 30}}, Limits(24.0, 30.0)),
        ({"rollout": {"response_length": 24, "max_model_len": 30, "name": "sglang"}}, Limits(24.0, 29.0)),
        ({"rollout": {"response_length": "many", "max_model_len": "auto"}}, Limits()),
        ({"rollout": {"multi_turn": {"function_tool_path": "tools.py"}}}, Limits(has_tools=True)),
        ({"rollout": {"multi_turn": {"tool_config_path": "tools.yaml"}}}, Limits(has_tools=True)),
        ({"rollout": {"multi_turn": {"enable": True}}}, Limits()),
    ],
)
def test_limits_are_those_of_the_configuration(config: dict[str, Any], expected: Limits) -> None:
    assert limits({"actor_rollout_ref": config}) == expected


def test_rejection_is_read_from_the_configuration() -> None:
    correction = {"rollout_rs": "token_k1", "bypass_mode": False}
    assert limits({"algorithm": {"rollout_correction": correction}}).rejects
    assert not limits({"algorithm": {"rollout_correction": {**correction, "bypass_mode": True}}}).rejects
    assert not limits({"algorithm": {"rollout_correction": {**correction, "rollout_rs": None}}}).rejects


def model(folder: Path, described: Any) -> dict[str, Any]:
    """A configuration without `max_model_len`, whose model is described like this."""
    (folder / "config.json").write_text(described if isinstance(described, str) else json.dumps(described))
    return {"actor_rollout_ref": {"model": {"path": str(folder)}, "rollout": {"name": "vllm"}}}


@pytest.mark.parametrize(
    ("described", "window"),
    [
        ({"max_position_embeddings": 4096}, 4096.0),
        ({"text_config": {"max_position_embeddings": 8192}}, 8192.0),
        ({"text_config": None}, None),
        ([], None),
        ("no JSON", None),
    ],
)
def test_without_a_setting_the_window_is_the_models(tmp_path: Path, described: Any, window: float | None) -> None:
    """verl's servers take what the model has: 4096 for Qwen2.5-Math, where a response may have 8192."""
    config = model(tmp_path, described)
    assert limits(config).window == window
    config["actor_rollout_ref"]["rollout"]["name"] = "a-users-own"
    assert limits(config).window is None


def test_the_setting_comes_before_the_model(tmp_path: Path) -> None:
    config = model(tmp_path, {"max_position_embeddings": 4096})
    config["actor_rollout_ref"]["rollout"]["max_model_len"] = 1024
    assert limits(config).window == 1024.0
    assert limits(config, (0, 6, 1)).window is None  # its servers made it prompt and response


def test_a_model_that_is_not_here_says_nothing() -> None:
    config = {"actor_rollout_ref": {"model": {"path": "org/name"}, "rollout": {"name": "vllm"}}}
    assert limits(config).window is None


anything = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.lists(st.integers())


@given(st.dictionaries(st.sampled_from(["name", "max_model_len", "response_length", "multi_turn"]), anything), anything)
def test_any_configuration_has_limits(rollout: dict[str, Any], path: Any) -> None:
    found = limits({"actor_rollout_ref": {"rollout": rollout, "model": {"path": path}}})
    assert found.window is None or isinstance(found.window, float)
