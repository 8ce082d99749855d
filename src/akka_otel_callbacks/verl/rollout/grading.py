"""Times verl's reward functions and managers in the processes that run them, and sends along with each rollout's score
what it took."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from types import ModuleType
from typing import Any
from weakref import WeakSet

from akka_otel_callbacks.common.graders.call import Call, encoded
from akka_otel_callbacks.common.graders.function import own_term
from akka_otel_callbacks.common.graders.ledger import Ledger, note
from akka_otel_callbacks.common.graders.terms import model_term, rule_term
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.verl.config import get
from akka_otel_callbacks.verl.environment import is_active
from akka_otel_callbacks.verl.patching.importhook import wrap

GRADED = "akka_otel_graded"
"""Where a rollout has its calls, as text: among its own extra fields, and in its tag."""
INFO = "reward_extra_info"

_carrying: WeakSet[asyncio.AbstractEventLoop] = WeakSet()


class Told(dict[str, Any]):
    """verl's dict of a score, or of what goes with it, and in an attribute, which verl does not see, its calls."""

    calls: str


def install(reward_loop: ModuleType) -> None:
    """The processes that score."""
    wrap(reward_loop.RewardLoopWorker, "compute_score", _scored)
    wrap(reward_loop.RewardLoopWorker, "compute_score_batch", _scored_batch)


def install_functions(reward: ModuleType) -> None:
    """Where a manager gets its reward function from: the user's, or verl's own."""
    wrap(reward, "get_custom_reward_fn", _timed_custom)
    wrap(reward, "get_default_compute_score", _timed_default)


def take_out(info: Any) -> str | None:
    """The calls that came with a score's extra information; None of one that came without."""
    return info.calls if isinstance(info, Told) else None


@guarded
def attach(outputs: Any) -> None:
    """Puts the calls of a completion among its own extra fields, in the process of its agent loop."""
    last = outputs[-1] if isinstance(outputs, list) else outputs
    calls = take_out(last.extra_fields.get(INFO))
    if calls is not None:
        last.extra_fields[INFO] = dict(last.extra_fields[INFO])
        last.extra_fields[GRADED] = calls


@guarded
def hide(scores: Any) -> None:
    """A reward model's batch keeps the calls as a column, which is no term."""
    keys = scores.meta_info.get("reward_extra_keys")
    if keys and GRADED in keys:
        scores.meta_info["reward_extra_keys"] = [key for key in keys if key != GRADED]


# The reward loop's worker


def _scored(compute: Callable[..., Any]) -> Callable[..., Any]:
    async def compute_score(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not is_active():
            return await compute(self, *args, **kwargs)
        _carry_contexts()
        start = perf_counter()
        with Ledger() as ledger:
            result = await compute(self, *args, **kwargs)
        return _told(self, result, ledger.calls, perf_counter() - start) or result

    return compute_score


@guarded
def _told(worker: Any, result: Any, calls: Sequence[Call], seconds: float) -> Any:
    """A reward model, and a manager of a user's own that calls no function, are terms themselves."""
    if not isinstance(result, dict):
        return None
    text = encoded(calls or [Call(_term_of(worker, result), seconds)])
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


def _scored_batch(compute: Callable[..., Any]) -> Callable[..., Any]:
    """For a reward model on the trainer's own devices: verl makes columns of what is in each row's information."""

    async def compute_score_batch(self: Any, *args: Any, **kwargs: Any) -> Any:
        results = await compute(self, *args, **kwargs)
        return (_as_columns(results) or results) if is_active() else results

    return compute_score_batch


@guarded
def _as_columns(results: Sequence[Any]) -> list[Any]:
    return [{**result, INFO: {**result.get(INFO, {}), GRADED: take_out(result) or encoded(())}} for result in results]


def _carry_contexts() -> None:
    """verl has plain functions run by the loop's own threads, which would not know whose rollout they score."""
    loop = asyncio.get_running_loop()
    if loop not in _carrying:
        _carrying.add(loop)
        if getattr(loop, "_default_executor", None) is None:  # a user's own stays
            loop.set_default_executor(_InContext(thread_name_prefix="asyncio"))


class _InContext(ThreadPoolExecutor):
    """Its threads work in the context of whoever hands them the work, as `asyncio.to_thread` has it."""

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        return super().submit(contextvars.copy_context().run, function, *args, **kwargs)


# Reward functions


def _timed_custom(load: Callable[..., Any]) -> Callable[..., Any]:
    def get_custom_reward_fn(config: Any, *args: Any, **kwargs: Any) -> Any:
        function = load(config, *args, **kwargs)
        if function is None or not is_active():
            return function
        return timed(function, rule_term(get(config, "reward.custom_reward_function.path")))

    return get_custom_reward_fn


def _timed_default(load: Callable[..., Any]) -> Callable[..., Any]:
    def get_default_compute_score(*args: Any, **kwargs: Any) -> Any:
        function = load(*args, **kwargs)
        return timed(function, getattr(function, "__name__", "compute_score")) if is_active() else function

    return get_default_compute_score


def timed(function: Callable[..., Any], term: str) -> Callable[..., Any]:
    """The function on the clock, of the same kind. It can be pickled as before: the manager `remote` does so."""
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
