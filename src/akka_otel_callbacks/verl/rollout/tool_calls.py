"""Counts tool calls and failed ones of each completion, in the process of the agent loop."""

from __future__ import annotations

import contextvars
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.calls import Call, after, around, before
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.rollout import scores, stopping
from akka_otel_callbacks.verl.rollout.fields import GRADED, TALLY

FAILED = (
    "Error executing tool ",  # from 0.8
    "Unknown function ",
    "Invalid JSON in arguments for ",
    "Error when executing tool",  # up to 0.7
)
"""How verl's own answer begins where a call failed."""
ENDED = "TERMINATED"
"""verl's name of the state of a completion that has ended."""


class Tally:
    __slots__ = ("calls", "ended", "failures")

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.ended = False
        """Whether a tool's response did not fit any more. verl then leaves it out and ends the completion."""


_tally: contextvars.ContextVar[Tally | None] = contextvars.ContextVar("akka_otel_tally", default=None)


def install(tool_agent_loop: ModuleType) -> None:
    loop = tool_agent_loop.ToolAgentLoop
    before(loop, "run", _begin)
    around(loop, "_call_tool", _count)
    after(loop, "_handle_processing_tools_state", _note_end)


def install_worker(agent_loop: ModuleType) -> None:
    """Has the workers tell what `install` counts.

    Raises:
        AttributeError: verl up to 0.6.
    """
    worker = agent_loop.AgentLoopWorker
    before(worker, "_postprocess", _complete)
    around(worker, "_compute_score", _tell)


def _begin(run: Call) -> None:
    """A tally per completion, which is a task of its own from here to its score. Its calls run as tasks, too, each with
    a copy of the context and so with the same tally."""
    _tally.set(Tally() if is_active() and getattr(run.owner, "tools", None) else None)


def _count(call_tool: Call) -> Iterator[None]:
    tally = _tally.get()
    if tally is not None:
        tally.calls += 1
        yield
        tally.failures += call_tool.error is not None or is_failure(call_tool.result)


def _note_end(handle: Call) -> None:
    """After its tools a completion goes on, unless there is no room for their responses."""
    tally = _tally.get()
    if tally is not None:
        tally.ended = getattr(handle.result, "name", None) == ENDED


def _tell(compute_score: Call) -> Iterator[None]:
    """Adds our fields to a completion once it is scored. The reward function gets the completion's fields, and must not
    find ours among them."""
    tally = _tally.get()
    _tally.set(None)
    yield
    if compute_score.error is not None:
        stopping.remember(compute_score.error)
        return
    outputs = compute_score.get(1, "outputs")
    if tally is not None:
        last = outputs[-1] if isinstance(outputs, list) else outputs
        last.extra_fields[TALLY] = (tally.calls, tally.failures, tally.ended)
    scores.attach(outputs)


def _complete(postprocess: Call) -> None:
    """Gives every completion both fields. verl joins the workers' batches, which must have the same columns whichever
    loops a worker had."""
    if is_active():
        for completion in postprocess.get(1, "inputs"):
            completion.extra_fields.setdefault(TALLY, None)
            completion.extra_fields.setdefault(GRADED, None)


def is_failure(result: Any) -> bool:
    """Whether verl answered in place of the tool: with one of its own texts, no reward and no result."""
    response, reward, extra = result
    return not reward and not extra and (response.text or "").startswith(FAILED)
