"""Ends a job of verl's v1 trainers where a judge does: they go on after a rollout that failed, and train on the others.

The agent loop's process puts the judge's words into the tag of the prompt that failed, and the trainer raises them when
it looks for rollouts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.graders.failure import JudgeStopped
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.patching.importhook import wrap

STOPPED = "akka_otel_stopped"
FAILED = {"status": "failure"}
"""verl's tag of a prompt of which a rollout failed."""

_said: list[str] = []
"""What a judge ended the job with, in this process."""


def install(transfer_queue: ModuleType) -> None:
    wrap(transfer_queue, "async_kv_put", _telling)
    wrap(transfer_queue, "kv_list", _heeding)


@guarded
def remember(error: BaseException) -> None:
    """Where a score failed. Ray raises an exception of two classes, which holds the one that was raised elsewhere."""
    if isinstance(error, JudgeStopped):
        _said[:] = [str(getattr(error, "cause", error))]


def _telling(put: Callable[..., Any]) -> Callable[..., Any]:
    async def async_kv_put(*args: Any, **kwargs: Any) -> Any:
        if _said and kwargs.get("tag") == FAILED:
            kwargs["tag"] = {**FAILED, STOPPED: _said[0]}
        return await put(*args, **kwargs)

    return async_kv_put


def _heeding(look: Callable[..., Any]) -> Callable[..., Any]:
    def kv_list(*args: Any, **kwargs: Any) -> Any:
        found = look(*args, **kwargs)
        if (said := _stopped(found)) is not None:
            raise JudgeStopped(said)
        return found

    return kv_list


@guarded
def _stopped(partitions: Mapping[str, Mapping[str, Mapping[str, Any]]] | None) -> str | None:
    tags = (tag for items in (partitions or {}).values() for tag in items.values())
    return next((tag[STOPPED] for tag in tags if STOPPED in tag), None)
