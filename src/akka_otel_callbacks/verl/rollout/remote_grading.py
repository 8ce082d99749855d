"""Times the function of verl's reward manager `remote`, which runs in further processes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.ledger import Ledger, note
from akka_otel_callbacks.common.patching import calls
from akka_otel_callbacks.common.run.handed_on import is_active


class Answer(NamedTuple):
    """What a worker of the manager sends back in place of the score alone."""

    score: Any
    calls: Sequence[Call]


def install(remote: ModuleType) -> None:
    manager = remote.RemoteRewardManager
    calls.before(manager, "__init__", _ask_for_calls)
    calls.after(manager, "choose_reward_worker", _note_calls)


def _ask_for_calls(init: calls.Call) -> None:
    given = init.bound()
    function = given.arguments.get("compute_score")
    if function is not None and is_active() and not inspect.iscoroutinefunction(function):
        given.arguments["compute_score"] = functools.partial(_answer, function)
        init.args, init.kwargs = given.args, given.kwargs


def _answer(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Answer:
    """Runs in the further process."""
    with Ledger() as ledger:
        score = function(*args, **kwargs)
    return Answer(score, ledger.calls)


def _note_calls(choose: calls.Call) -> None:
    if is_active():
        choose.result = _Worker(choose.result)


class _Worker:
    """Ray's handle of a worker, as far as verl uses it."""

    def __init__(self, worker: Any) -> None:
        self._worker = worker
        self.compute_score = self

    def __getattr__(self, name: str) -> Any:
        return getattr(self._worker, name)

    async def remote(self, *args: Any, **kwargs: Any) -> Any:
        answer = await self._worker.compute_score.remote(*args, **kwargs)
        if not isinstance(answer, Answer):
            return answer
        for call in answer.calls:
            note(call)
        return answer.score
