"""The same for verl's reward manager `remote`, whose function runs in further processes."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.ledger import Ledger, note
from akka_otel_callbacks.verl.environment import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap


class Answer(NamedTuple):
    """What a worker of the manager sends back in place of the score alone."""

    score: Any
    calls: Sequence[Call]


def install(remote: ModuleType) -> None:
    manager = remote.RemoteRewardManager
    wrap(manager, "__init__", _answering)
    wrap(manager, "choose_reward_worker", _reading)


def _answering(init: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(init)

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        given = signature.bind(self, *args, **kwargs)
        function = given.arguments.get("compute_score")
        if function is not None and is_active() and not inspect.iscoroutinefunction(function):
            given.arguments["compute_score"] = functools.partial(_answer, function)
        init(*given.args, **given.kwargs)

    return __init__


def _answer(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Answer:
    """Runs in the further process."""
    with Ledger() as ledger:
        score = function(*args, **kwargs)
    return Answer(score, ledger.calls)


def _reading(choose: Callable[..., Any]) -> Callable[..., Any]:
    def choose_reward_worker(self: Any) -> Any:
        worker = choose(self)
        return _Worker(worker) if is_active() else worker

    return choose_reward_worker


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
