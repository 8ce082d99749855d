"""Gives each rollout server of a run one more stat logger: vLLM's own metrics, with the run's labels.

vLLM's entry point for stat loggers is no way in: whatever is registered there turns statistics on in every vLLM
engine of the environment (`log_stats or has_custom_loggers`), whether it belongs to a run or not and whether it has
them switched off or not. A constructor's argument concerns one engine.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap


def install(async_llm: ModuleType) -> None:
    wrap(async_llm.AsyncLLM, "__init__", _with_run_labels)


def _with_run_labels(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    @guarded
    def arguments(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
        from akka_otel_callbacks.verl.rollout.stat_logger import RunStatLogger

        bound = signature.bind(*args, **kwargs)
        if bound.arguments["log_stats"]:  # verl's `disable_log_stats` switches them off, and that is respected
            bound.arguments["stat_loggers"] = [*(bound.arguments.get("stat_loggers") or ()), RunStatLogger]
        return bound

    def __init__(*args: Any, **kwargs: Any) -> None:
        bound = arguments(*args, **kwargs) if is_active() else None
        if bound is None:
            init(*args, **kwargs)
        else:
            init(*bound.args, **bound.kwargs)

    return __init__
