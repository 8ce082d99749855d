"""Times verl's reward functions and managers in the processes that run them, and sends along with each rollout's score
what it took."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from types import ModuleType
from typing import Any

from akka_otel_callbacks.common.graders.call import Call, encoded
from akka_otel_callbacks.common.graders.function import own_term
from akka_otel_callbacks.common.graders.ledger import Ledger, note
from akka_otel_callbacks.common.graders.terms import model_term, rule_term
from akka_otel_callbacks.common.patching import calls
from akka_otel_callbacks.common.run.handed_on import is_active
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.rollout.fields import GRADED
from akka_otel_callbacks.verl.rollout.scores import INFO, Told, take_out
from akka_otel_callbacks.verl.state import STATE


def install(reward_loop: ModuleType) -> None:
    """Hooks the processes that score."""
    calls.around(reward_loop.RewardLoopWorker, "compute_score", _time)
    calls.after(reward_loop.RewardLoopWorker, "compute_score_batch", _add_column)


def install_functions(reward: ModuleType) -> None:
    """Hooks the functions that give a manager its reward function: the user's, or verl's own."""
    calls.after(reward, "get_custom_reward_fn", _time_custom)
    calls.after(reward, "get_default_compute_score", _time_default)


# The reward loop's worker


def _time(compute: calls.Call) -> Iterator[None]:
    if not is_active():
        return
    _carry_contexts()
    start = perf_counter()
    with Ledger() as ledger:
        yield
    if compute.error is None:
        compute.result = _told(compute.owner, compute.result, ledger.calls, perf_counter() - start)


def _told(worker: Any, result: Any, made: Sequence[Call], seconds: float) -> Any:
    """The result with the calls that made it. A reward model, and a user's own manager that calls no function, are a
    term themselves."""
    if not isinstance(result, dict):
        return result
    text = encoded(made or [Call(_term_of(worker, result), seconds)])
    told = Told(result)
    told.calls = text
    if isinstance(info := result.get(INFO), dict):
        told[INFO] = Told(info)
        told[INFO].calls = text
    return told


def _term_of(worker: Any, result: dict[str, Any]) -> str:
    if INFO not in result and get(worker.config, "reward.reward_model.enable"):
        return model_term(get(worker.config, "reward.reward_model.model_path"))
    return type(worker.reward_manager).__name__


def _add_column(compute: calls.Call) -> None:
    """Adds the calls for a reward model on the trainer's own devices: verl makes columns of what is in each row's
    information."""
    if is_active():
        compute.result = [
            {**result, INFO: {**result.get(INFO, {}), GRADED: take_out(result) or encoded(())}}
            for result in compute.result
        ]


def _carry_contexts() -> None:
    """Has the loop's threads work in the context of the caller. verl runs plain functions on them, and otherwise they
    would not know whose rollout they score."""
    loop = asyncio.get_running_loop()
    if loop not in STATE.loops_with_contexts:
        STATE.loops_with_contexts.add(loop)
        if getattr(loop, "_default_executor", None) is None:  # a user's own stays
            loop.set_default_executor(_InContext(thread_name_prefix="asyncio"))


class _InContext(ThreadPoolExecutor):
    """Its threads work in the context of whoever hands them the work, as `asyncio.to_thread` has it."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(contextvars.copy_context().run, function, *args, **kwargs)


# Reward functions


def _time_custom(load: calls.Call) -> None:
    if load.result is not None and is_active():
        path = get(load.get(0, "config"), "reward.custom_reward_function.path")
        load.result = timed(load.result, rule_term(path))


def _time_default(load: calls.Call) -> None:
    if is_active():
        load.result = timed(load.result, getattr(load.result, "__name__", "compute_score"))


def timed(function: Callable[..., Any], term: str) -> Callable[..., Any]:
    """The function with its calls timed. A coroutine function stays one, and it can be pickled as before, as the
    manager `remote` does."""
    if own_term(_users_own(function)) is not None:
        return function
    return functools.partial(_call_async if inspect.iscoroutinefunction(function) else _call, term, function)


def _call(term: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    start = perf_counter()
    score = function(*args, **kwargs)
    note(Call(term, perf_counter() - start))
    return score


async def _call_async(term: str, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    start = perf_counter()
    score = await function(*args, **kwargs)
    note(Call(term, perf_counter() - start))
    return score


def _users_own(function: Any) -> Any:
    """What a user wrote: verl binds the function's settings to a caller of the function."""
    while isinstance(function, functools.partial):
        function = function.args[0] if function.args and callable(function.args[0]) else function.func
    return function
