"""Ends a job of verl's v1 trainers when a judge stops it. These trainers would go on without the failed rollout.

The agent loop's process puts the judge's words into the tag of the prompt that failed, and the trainer raises them when
it looks for rollouts.

Every process of verl has these hooks, and few see a judge stop: what that needs is imported then.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.patching.calls import Call, after, before

STOPPED = "akka_otel_stopped"
FAILED = {"status": "failure"}
"""verl's tag of a prompt of which a rollout failed."""


def install(transfer_queue: ModuleType) -> None:
    before(transfer_queue, "async_kv_put", _tell)
    after(transfer_queue, "kv_list", _heed)


def remember(error: BaseException) -> None:
    """Notes the words of a judge that stopped, when a score has failed. Ray raises an exception of two classes, which
    holds the one that was raised in the other process."""
    from akka_otel_callbacks.common.graders.strikes import JudgeStopped
    from akka_otel_callbacks.verl.state import STATE

    if isinstance(error, JudgeStopped):
        STATE.judges_words = str(getattr(error, "cause", error))


def _tell(put: Call) -> None:
    if put.kwargs.get("tag") != FAILED:
        return
    from akka_otel_callbacks.verl.state import STATE

    if STATE.judges_words is not None:
        put.kwargs = {**put.kwargs, "tag": {**FAILED, STOPPED: STATE.judges_words}}


def _heed(look: Call) -> None:
    if (said := _stopped(look.result)) is not None:
        from akka_otel_callbacks.common.graders.strikes import JudgeStopped

        look.error = JudgeStopped(said)


def _stopped(partitions: Mapping[str, Mapping[str, Mapping[str, Any]]] | None) -> str | None:
    tags = (tag for items in (partitions or {}).values() for tag in items.values())
    return next((tag[STOPPED] for tag in tags if STOPPED in tag), None)
