"""Hooks around the calls of somebody else's functions: what they see, and that they change nothing by failing."""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import gc
import inspect
import pickle
import subprocess
import sys
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.patching.calls import Call, after, around, before, is_hooked

ROOT = Path(__file__).parents[3]
seen: list[Any] = []


@pytest.fixture(autouse=True)
def _nothing_seen() -> Iterator[None]:
    seen.clear()
    guard.failures.clear()
    yield
    assert not guard.failures


def failures() -> dict[tuple[str, str], int]:
    found = dict(guard.failures)
    guard.failures.clear()
    return found


class Engine:
    """Somebody else's, with a method of each kind."""

    def __init__(self, scale: int = 1) -> None:
        self.scale = scale

    def step(self, batch: Any, scale: int = 1) -> Any:
        """Takes a step."""
        seen.append("step")
        if batch is None:
            raise LookupError("no batch")
        return batch * scale

    async def later(self, batch: Any, scale: int = 1) -> Any:
        seen.append("later")
        await asyncio.sleep(0)
        if batch is None:
            raise LookupError("no batch")
        return batch * scale

    @staticmethod
    def static(batch: Any) -> Any:
        return batch

    @classmethod
    def of_class(cls, batch: Any) -> Any:
        return cls, batch

    @property
    def size(self) -> int:
        return self.scale


@pytest.fixture
def engine() -> Any:
    return type("Engine", (Engine,), {"step": Engine.step, "later": Engine.later})


METHODS = ("step", "later")


def called(owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    result = getattr(owner, name)(*args, **kwargs)
    return asyncio.run(result) if inspect.iscoroutine(result) else result


def tell_before(call: Call) -> None:
    seen.append(("before", call.owner.scale, call.get(1, "batch"), call.bound().arguments.get("scale")))


def tell_after(call: Call) -> None:
    seen.append(("after", call.result))


def tell_both(call: Call) -> Iterator[None]:
    seen.append(("begin", call.result, call.error))
    yield
    seen.append(("end", call.result, type(call.error)))


def leave_alone(call: Call) -> Iterator[None]:
    if call.get(1, "batch") == 3:
        return
    yield
    seen.append("end")


def ask_for_more(call: Call) -> None:
    call.kwargs = {**call.kwargs, "scale": 10}


@pytest.mark.parametrize("name", METHODS)
def test_before_and_after_each_call(engine: Any, name: str) -> None:
    before(engine, name, tell_before)
    after(engine, name, tell_after)
    assert called(engine(7), name, 3, scale=2) == 6
    assert called(engine(7), name, batch=3) == 3
    assert seen == [("before", 7, 3, 2), name, ("after", 6), ("before", 7, 3, None), name, ("after", 3)]


@pytest.mark.parametrize("name", METHODS)
def test_around_each_call_whether_it_returns_or_raises(engine: Any, name: str) -> None:
    around(engine, name, tell_both)
    assert called(engine(), name, 3) == 3
    assert seen == [("begin", None, None), name, ("end", 3, type(None))]
    seen.clear()
    with pytest.raises(LookupError, match="no batch"):
        called(engine(), name, None)
    assert seen == [("begin", None, None), name, ("end", None, LookupError)]


@pytest.mark.parametrize("name", METHODS)
def test_after_is_for_calls_that_return(engine: Any, name: str) -> None:
    after(engine, name, tell_after)
    with pytest.raises(LookupError, match="no batch"):
        called(engine(), name, None)
    assert seen == [name]


@pytest.mark.parametrize("name", METHODS)
def test_a_hook_may_leave_a_call_alone(engine: Any, name: str) -> None:
    around(engine, name, leave_alone)
    assert (called(engine(), name, 3), called(engine(), name, 4)) == (3, 4)
    assert seen == [name, name, "end"]


@pytest.mark.parametrize("name", METHODS)
def test_a_hook_may_give_other_arguments(engine: Any, name: str) -> None:
    before(engine, name, ask_for_more)
    assert called(engine(), name, 3) == 30


def double_the_result(call: Call) -> None:
    call.result = 2 * call.result


def refuse(call: Call) -> None:
    call.error = PermissionError("enough")


@pytest.mark.parametrize("name", METHODS)
def test_a_hook_may_give_another_result(engine: Any, name: str) -> None:
    after(engine, name, double_the_result)
    assert called(engine(), name, 3) == 6


@pytest.mark.parametrize("name", METHODS)
def test_a_hook_may_end_the_work_on_purpose(engine: Any, name: str) -> None:
    after(engine, name, refuse)
    with pytest.raises(PermissionError, match="enough"):
        called(engine(), name, 3)


def fail_at_the_begin(call: Call) -> Iterator[None]:
    raise ZeroDivisionError
    yield


def fail_at_the_end(call: Call) -> Iterator[None]:
    yield
    raise ZeroDivisionError


def stop(call: Call) -> Iterator[None]:
    yield
    raise StopIteration  # which Python turns into an error


def fail(call: Call) -> None:
    raise ZeroDivisionError


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize(
    ("place", "hook"), [(around, fail_at_the_begin), (around, fail_at_the_end), (around, stop), (before, fail)]
)
@pytest.mark.parametrize("batch", [3, None])
def test_a_hook_that_fails_changes_nothing(engine: Any, name: str, place: Any, hook: Any, batch: Any) -> None:
    place(engine, name, hook)
    if batch is None:
        with pytest.raises(LookupError, match="no batch") as raised:
            called(engine(), name, batch)
        assert raised.value.__cause__ is raised.value.__context__ is None
    else:
        assert called(engine(), name, batch) == batch
    assert seen == [name], "it is called once"
    kind = "RuntimeError" if hook is stop else "ZeroDivisionError"
    assert failures() == {(hook.__qualname__, kind): 1}


def interrupt(call: Call) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("place", [before, after])
def test_an_interrupt_is_the_users(engine: Any, place: Any) -> None:
    place(engine, "step", interrupt)
    with pytest.raises(KeyboardInterrupt):
        engine().step(3)


def exceptions() -> list[Any]:
    return [
        ValueError("x"),
        StopIteration(1),
        StopAsyncIteration(),
        GeneratorExit(),
        SystemExit(3),
        KeyboardInterrupt(),
    ]


@pytest.mark.parametrize("error", exceptions(), ids=lambda error: type(error).__name__)
def test_any_exception_passes_as_it_is(error: BaseException) -> None:
    def failing() -> None:
        raise error

    module = SimpleNamespace(failing=failing)
    around(module, "failing", tell_both)
    with pytest.raises(type(error)) as raised:
        module.failing()
    assert raised.value is error
    assert seen == [("begin", None, None), ("end", None, type(error))]


def test_a_task_that_is_cancelled_ends_for_the_hook_too(engine: Any) -> None:
    around(engine, "later", tell_both)

    async def cancelled() -> None:
        task = asyncio.ensure_future(engine().later(3))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancelled())
    assert seen == [("begin", None, None), "later", ("end", None, asyncio.CancelledError)]


def test_a_context_variable_that_a_hook_sets_is_the_tasks_own(engine: Any) -> None:
    batch: contextvars.ContextVar[int] = contextvars.ContextVar("batch")

    def note(call: Call) -> Iterator[None]:
        batch.set(call.get(1, "batch"))
        yield
        seen.append(batch.get())

    around(engine, "later", note)

    async def together() -> None:
        await asyncio.gather(engine().later(1), engine().later(2))

    asyncio.run(together())
    assert seen == ["later", "later", 1, 2]


def test_calls_within_calls_have_hooks_of_their_own(engine: Any) -> None:
    module = SimpleNamespace()
    module.count = lambda n: 0 if n == 0 else 1 + module.count(n - 1)
    around(module, "count", tell_both)
    assert module.count(2) == 2
    assert [line[:2] for line in seen] == [("begin", None)] * 3 + [("end", 0), ("end", 1), ("end", 2)]


class Batch:
    """Something that is to be freed."""


@pytest.mark.parametrize(("place", "hook"), [(before, id), (after, id), (around, leave_alone)])
def test_nothing_is_kept_of_a_call_that_failed(engine: Any, place: Any, hook: Any) -> None:
    """What did not fit on a device must be free at once for a smaller batch that follows."""
    place(engine, "step", hook)

    def attempt() -> weakref.ref[Batch]:
        batch = Batch()
        with contextlib.suppress(TypeError):
            engine().step(batch)  # it cannot be multiplied
        return weakref.ref(batch)

    gc.disable()
    try:
        assert attempt()() is None
    finally:
        gc.enable()


def test_the_same_hook_is_put_on_once_and_another_one_too(engine: Any) -> None:
    for _ in range(2):
        before(engine, "step", ask_for_more)
        after(engine, "step", tell_after)
        around(engine, "step", tell_both)
    assert engine().step(3) == 30
    assert seen == [("begin", None, None), "step", ("after", 30), ("end", 30, type(None))]
    assert all(is_hooked(engine, "step", hook) for hook in (ask_for_more, tell_after, tell_both))
    assert not is_hooked(engine, "later", tell_both)
    assert not is_hooked(None, "step", tell_both)


def test_a_method_that_a_subclass_inherits_is_hooked_already(engine: Any) -> None:
    after(engine, "step", tell_after)
    after(type("Special", (engine,), {}), "step", tell_after)
    engine().step(3)
    assert seen == ["step", ("after", 3)]


@pytest.mark.parametrize("name", ["static", "of_class", "size"])
def test_what_is_no_method_is_refused(engine: Any, name: str) -> None:
    with pytest.raises(TypeError, match=f"Engine.{name} is no method"):
        before(engine, name, fail)
    assert getattr(Engine(5), name) is not None


def test_a_name_that_is_not_there_is_an_error(engine: Any) -> None:
    with pytest.raises(AttributeError):
        before(engine, "no_such", fail)
    with pytest.raises(TypeError):
        before(dict, "get", fail)  # a class that cannot be changed


@pytest.mark.parametrize("name", METHODS)
def test_a_hooked_function_looks_like_itself(engine: Any, name: str) -> None:
    original = vars(Engine)[name]
    before(engine, name, ask_for_more)
    hooked = vars(engine)[name]
    assert (hooked.__name__, hooked.__qualname__, hooked.__doc__) == (name, f"Engine.{name}", original.__doc__)
    assert hooked.__wrapped__ is original
    assert inspect.signature(hooked) == inspect.signature(original)
    assert inspect.iscoroutinefunction(hooked) == (name == "later"), "Ray makes an actor asynchronous by this"
    assert inspect.getsource(hooked) == inspect.getsource(original)


def answer() -> int:
    return 1


def test_a_hooked_function_is_pickled_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = sys.modules[__name__]
    monkeypatch.setattr(module, "answer", answer)
    before(module, "answer", seen.append)
    assert pickle.loads(pickle.dumps(module.answer)) is module.answer is not module.answer.__wrapped__


IN_ANOTHER_PROCESS = """
import pickle, sys
from tests.common.patching.test_calls import after, is_hooked, seen, tell_after
trainer = pickle.load(sys.stdin.buffer)
assert is_hooked(trainer, "train", tell_after)
after(trainer, "train", tell_after)
assert trainer().train(3) == 3
assert seen == [("after", 3)], seen
"""


def test_a_notebooks_class_is_pickled_with_its_hooks_and_hooked_once() -> None:
    cloudpickle = pytest.importorskip("cloudpickle", reason="comes with Ray and other engines")
    namespace: dict[str, Any] = {"__name__": "__main__"}
    exec("class Trainer:\n    def train(self, steps):\n        return steps", namespace)
    after(namespace["Trainer"], "train", tell_after)
    pickled = cloudpickle.dumps(namespace["Trainer"])
    subprocess.run([sys.executable, "-c", IN_ANOTHER_PROCESS], input=pickled, cwd=ROOT, check=True)


def test_at_the_exit_a_hook_that_lost_its_names_is_no_trouble() -> None:
    """A module that is taken down has None for all its names, and a `__del__` may be called afterwards."""
    from akka_otel_callbacks.common.patching import calls

    class Kept:
        def __del__(self) -> None:
            seen.append("deleted")

    around(Kept, "__del__", tell_both)
    kept = Kept()
    names = {name: vars(calls)[name] for name in ("_HookGuard", "Call", "functools", "inspect")}
    vars(calls).update(dict.fromkeys(names))
    try:
        del kept
    finally:
        vars(calls).update(names)
    assert seen == [("begin", None, None), "deleted", ("end", None, type(None))]


def test_a_users_traceback_has_one_line_more_for_a_hook(engine: Any) -> None:
    plain, hooked = Engine(), engine()
    around(engine, "step", tell_both)

    def depth(call: Callable[..., Any]) -> int:
        try:
            call(None)
        except LookupError as error:
            return len(traceback.extract_tb(error.__traceback__))
        raise AssertionError

    assert depth(hooked.step) == depth(plain.step) + 1


@given(st.lists(st.integers()), st.dictionaries(st.text(), st.integers()))
def test_any_arguments_pass(args: list[int], kwargs: dict[str, int]) -> None:
    module: Any = ModuleType("somebody_elses")
    module.function = lambda *args, **kwargs: (args, kwargs)
    around(module, "function", tell_both)
    assert module.function(*args, **kwargs) == (tuple(args), kwargs)
