"""Counts tool calls and failed ones of each completion, in the process of the agent loop."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap
from akka_otel_callbacks.verl.rollout import grading, stopping

TALLY = "akka_otel_tool_calls"
"""The field that carries `(calls, failures, whether a response did not fit)` to the trainer beside a completion's own
extra fields."""

FAILED = (
    "Error executing tool ",  # from 0.8
    "Unknown function ",
    "Invalid JSON in arguments for ",
    "Error when executing tool",  # up to 0.7
)
"""How verl's own answer begins where a call failed."""
ENDED = "TERMINATED"
"""verl's name of the state of a completion that has ended."""


@dataclass(slots=True)
class Tally:
    calls: int = 0
    failures: int = 0
    ended: bool = False
    """A tool's response did not fit any more: verl leaves it out and ends the completion."""


_tally: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("akka_otel_tally", default=None)


def install(tool_agent_loop: ModuleType) -> None:
    wrap(tool_agent_loop.ToolAgentLoop, "run", _tallied)
    wrap(tool_agent_loop.ToolAgentLoop, "_call_tool", _counted)
    wrap(tool_agent_loop.ToolAgentLoop, "_handle_processing_tools_state", _noted)


def install_worker(agent_loop: ModuleType) -> None:
    """Without this nothing is told of what `install` counts.

    Raises:
        AttributeError: verl up to 0.6.
    """
    worker = agent_loop.AgentLoopWorker
    wrap(worker, "_postprocess", _evened)
    wrap(worker, "_compute_score", _told_after)


def _tallied(run: Callable[..., Any]) -> Callable[..., Any]:
    """A tally per completion, which is a task of its own from here to its score. Its calls run as tasks, too, each with
    a copy of the context and so with the same tally."""

    async def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        _tally.set(Tally() if is_active() and getattr(self, "tools", None) else None)
        return await run(self, *args, **kwargs)

    return wrapped


def _told_after(compute_score: Callable[..., Any]) -> Callable[..., Any]:
    """The reward function is given the completion's fields, and must not find ours among them."""

    async def _compute_score(self: Any, outputs: Any, *args: Any, **kwargs: Any) -> Any:
        tally = _tally.get()
        _tally.set(None)
        try:
            scored = await compute_score(self, outputs, *args, **kwargs)
        except BaseException as error:
            stopping.remember(error)
            raise
        if tally is not None:
            _attach(outputs, tally)
        grading.attach(outputs)
        return scored

    return _compute_score


def _evened(postprocess: Callable[..., Any]) -> Callable[..., Any]:
    """verl joins the workers' batches, which must have the same columns whichever loops a worker had."""

    def _postprocess(self: Any, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        if is_active():
            _even(inputs)
        return postprocess(self, inputs, *args, **kwargs)

    return _postprocess


@guarded
def _even(completions: Any) -> None:
    for completion in completions:
        completion.extra_fields.setdefault(TALLY, None)
        completion.extra_fields.setdefault(grading.GRADED, None)


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


def _noted(handle: Callable[..., Any]) -> Callable[..., Any]:
    """After its tools a completion goes on, unless there is no room for their responses."""

    async def _handle_processing_tools_state(*args: Any, **kwargs: Any) -> Any:
        state = await handle(*args, **kwargs)
        tally = _tally.get()
        if tally is not None:
            tally.ended = getattr(state, "name", None) == ENDED
        return state

    return _handle_processing_tools_state


@guarded
def is_failure(result: Any) -> bool:
    """Whether verl answered in place of the tool: with one of its own texts, no reward and no result."""
    response, reward, extra = result
    return not reward and not extra and (response.text or "").startswith(FAILED)


@guarded
def _attach(output: Any, tally: Tally) -> None:
    last = output[-1] if isinstance(output, list) else output
    last.extra_fields[TALLY] = (tally.calls, tally.failures, tally.ended)
