"""Counts tool calls and failed ones of each completion, in the process of the agent loop."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.environment import is_active
from akka_otel_callbacks.verl.importhook import wrap

TALLY = "akka_otel_tool_calls"
"""The field that carries `(calls, failures)` to the trainer beside a completion's own extra fields."""

FAILED = (
    "Error executing tool ",  # from 0.8
    "Unknown function ",
    "Invalid JSON in arguments for ",
    "Error when executing tool",  # up to 0.7
)
"""How verl's own answer begins where a call failed."""


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0


_tally: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("akka_otel_tally", default=None)


def install(tool_agent_loop: ModuleType) -> None:
    """
    Raises:
        KeyError: verl up to 0.5, whose completions carry no fields of others.
    """
    tool_agent_loop.AgentLoopOutput.model_fields["extra_fields"]
    wrap(tool_agent_loop.ToolAgentLoop, "run", _tallied)
    wrap(tool_agent_loop.ToolAgentLoop, "_call_tool", _counted)


def _tallied(run: Callable[..., Any]) -> Callable[..., Any]:
    """A tally per completion. Its calls run as tasks of their own, each with a copy of the context and so with the
    same tally."""

    async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_active() or not getattr(self, "tools", None):
            return await run(self, *args, **kwargs)
        tally = Tally()
        token = _tally.set(tally)
        try:
            output = await run(self, *args, **kwargs)
        finally:
            _tally.reset(token)
        _attach(output, tally)
        return output

    return wrapped


def _counted(call_tool: Callable[..., Any]) -> Callable[..., Any]:
    async def wrapped(*args: Any, **kwargs: Any) -> Any:
        tally = _tally.get()
        if tally is None:
            return await call_tool(*args, **kwargs)
        tally.calls += 1
        try:
            result = await call_tool(*args, **kwargs)
        except BaseException:
            tally.failures += 1
            raise
        tally.failures += bool(is_failure(result))
        return result

    return wrapped


@guarded
def is_failure(result: Any) -> bool:
    """Whether verl answered in place of the tool: with one of its own texts, no reward and no result."""
    response, reward, extra = result
    return not reward and not extra and (response.text or "").startswith(FAILED)


@guarded
def _attach(output: Any, tally: Tally) -> None:
    last = output[-1] if isinstance(output, list) else output
    last.extra_fields[TALLY] = (tally.calls, tally.failures)
