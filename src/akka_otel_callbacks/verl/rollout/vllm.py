"""Gives each rollout server of a run one more stat logger: vLLM's own metrics, with the run's labels.

vLLM's entry point for stat loggers cannot be used: whatever is registered there turns statistics on in every vLLM
engine of the environment (`log_stats or has_custom_loggers`), whether it belongs to a run or not and whether it has
them switched off or not. A constructor's argument concerns one engine.
"""

from __future__ import annotations

from types import ModuleType

from akka_otel_callbacks.common.patching.calls import Call, before
from akka_otel_callbacks.common.run.handed_on import is_active


def install(async_llm: ModuleType) -> None:
    before(async_llm.AsyncLLM, "__init__", _add_stat_logger)


def _add_stat_logger(init: Call) -> None:
    if not is_active():
        return
    from akka_otel_callbacks.verl.rollout.stat_logger import RunStatLogger

    bound = init.bound()
    if bound.arguments["log_stats"]:  # verl's `disable_log_stats` switches them off, and that is respected
        bound.arguments["stat_loggers"] = [*(bound.arguments.get("stat_loggers") or ()), RunStatLogger]
        init.args, init.kwargs = bound.args, bound.kwargs
