"""The limits that cut a completion off, from verl's configuration and the model's."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.driver.unusable import rejects_tokens
from akka_otel_callbacks.verl.settings import max_completion_length

ROLLOUT = "actor_rollout_ref.rollout"
TOOL_PATHS = ("tool_config_path", "function_tool_path")
"""Keys of the configuration that name the tools."""
SERVERS_WITH_THE_MODELS_WINDOW = ("vllm", "sglang", "trtllm")
"""Rollout servers that take the model's own limit if `max_model_len` is not set."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a run's completions."""

    response: float | None = None
    """Tokens at which an agent loop cuts what follows the prompt."""
    window: float | None = None
    """Tokens at which a rollout server stops, the prompt included."""
    has_tools: bool = False
    """Whether a tool's response that does not fit ends a completion below its limit."""
    rejects: bool = False
    """Whether the mask of the model's own tokens lacks those that were rejected for the update."""


def limits(config: Any, verl_version: tuple[int, ...] = (sys.maxsize,)) -> Limits:
    """The limits under a configuration. It may read the model's `config.json`."""
    return Limits(
        response=number(max_completion_length(config)),
        window=_window(config) if verl_version >= (0, 7) else None,  # earlier servers made it wide enough
        has_tools=any(get(config, f"{ROLLOUT}.multi_turn.{paths}") for paths in TOOL_PATHS),
        rejects=rejects_tokens(config),
    )


def _window(config: Any) -> float | None:
    server = get(config, f"{ROLLOUT}.name")
    window = number(get(config, f"{ROLLOUT}.max_model_len"))
    if window is None and server in SERVERS_WITH_THE_MODELS_WINDOW:
        window = _window_of_model(get(config, "actor_rollout_ref.model.path"))
    if window is not None and server == "sglang":
        return window - 1  # verl keeps a token free there
    return window


def _window_of_model(path: Any) -> float | None:
    """The limit of the model's own configuration, if that is on this machine."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        described = json.loads(_model_config(str(path)).read_text())
        windows = (described, described.get("text_config") or {})
        return next((found for of in windows if (found := number(of.get("max_position_embeddings"))) is not None), None)
    return None


def _model_config(path: str) -> Path:
    """The path of a model's `config.json`, in its folder or in the hub's cache."""
    if not Path(path).is_dir() and (hub := sys.modules.get("huggingface_hub")) is not None:
        return Path(hub.try_to_load_from_cache(path, "config.json") or "")
    return Path(path) / "config.json"
