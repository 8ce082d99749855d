"""Times each reward function of a trainer, in the regions that TRL itself puts around them for its profiler.

A region has the function's name. It is the same in every version of TRL and in hosts' copies of its trainers, around a
plain function, an asynchronous one on its own thread, and a reward model with its tokenizer.
"""

from __future__ import annotations

import functools
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, NamedTuple, TypeAlias

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.function import is_async, own_term
from akka_otel_callbacks.common.graders.ledger import Ledger, current
from akka_otel_callbacks.trl.device_clock import device_clock

PROFILING, REGION = "trl.extras.profiling", "profiling_context"
TAPPED = "__akka_otel_tapped__"


class Rewarder(NamedTuple):
    """One reward function."""

    label: str
    """The label of its term."""
    own: str | None
    """The term that it notes its calls under by itself."""
    module: Any
    """The reward model. None if it is a function."""


class Scorings(Ledger):
    """The reward functions of a trainer, and how long they take. Between `begin` and `end` of a batch it is also the
    ledger of the calls that they note themselves."""

    def __init__(self, trainer: Any, labels: Sequence[str]) -> None:
        super().__init__()
        self._trainer = weakref.ref(trainer) if trainer is not None else lambda: None
        self._rewarders = _in_order_of_calls(trainer, labels)
        self._begun: dict[str, int] = {}
        self._is_open = False
        self.entries: list[_Timed] = []
        self.heard = False
        """Whether TRL has entered a region of one of these functions."""

    def own_terms(self) -> set[str]:
        """The terms of functions that note their calls, and so their failures, by themselves."""
        return {each.label for named in self._rewarders.values() for each in named if each.own is not None}

    def begin(self) -> None:
        """Called before the trainer has a batch scored. If that failed the last time, the ledger starts anew."""
        if self._is_open:
            self.end(0)
        self._is_open = True
        self.__enter__()

    def end(self, rows: int) -> Batch:
        """Called when the batch has been scored. Returns what was noted of it."""
        if self._is_open:
            self._is_open = False
            self.__exit__()
        batch = rows, self.entries, self.calls
        self.entries, self.calls = [], []
        if self._begun:
            self._begun = {}
        return batch

    def around(self, region: Any, trainer: Any, name: str) -> Any:
        """A region of TRL, in a form that is heard. It stays as it is if it is of no reward function, or of one that
        notes its calls under its own label."""
        rewarders = self._rewarders.get(name)
        if rewarders is None or self._trainer() is not trainer:
            return region
        self.heard = True
        rewarder = rewarders[0] if len(rewarders) == 1 else self._next(name, rewarders)
        if rewarder.own is None:
            return _Timed(region, self, rewarder)
        return region if rewarder.own == rewarder.label else _Relabelled(region, self, rewarder)

    def _next(self, name: str, rewarders: Sequence[Rewarder]) -> Rewarder:
        at = self._begun[name] = self._begun.get(name, -1) + 1
        return rewarders[at % len(rewarders)]


class _Timed:
    """TRL's own context with a clock in it, around a function that notes no calls itself."""

    __slots__ = ("_device", "_end", "_inner", "_rewarder", "_scorings", "_start")

    def __init__(self, inner: Any, scorings: Scorings, rewarder: Rewarder) -> None:
        self._inner, self._scorings, self._rewarder = inner, scorings, rewarder

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        self._device = None if self._rewarder.module is None else device_clock(self._rewarder.module)
        self._start = perf_counter()
        return entered

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> Any:
        self._end = perf_counter()
        if self._device is not None:
            self._device.stop()
        self._scorings.entries.append(self)
        return self._inner.__exit__(kind, error, traceback)

    @property
    def label(self) -> str:
        return self._rewarder.label

    def took_s(self) -> float:
        """Waits for a device: only on the translator's thread."""
        return self._end - self._start if self._device is None else self._device.seconds()


Batch: TypeAlias = tuple[int, list[_Timed], list[Call]]
"""The scoring of one batch: the number of rows, what was timed, and what functions noted by themselves. It is a plain
tuple, because an object would cost a tenth of the whole timing."""


def calls_of(batch: Batch) -> Iterable[Call]:
    """Waits for a device: only on the translator's thread."""
    rows, timed, noted = batch
    yield from noted
    for entry in timed if rows else ():
        yield Call(entry.label, entry.took_s() / rows, rows)


def values_held(batch: Batch) -> int:
    """How many numbers a batch will become."""
    rows, timed, noted = batch
    return len(noted) + rows * len(timed)


class _Relabelled:
    """The same context around a second function of the same name. The function's calls get its label."""

    __slots__ = ("_inner", "_ledger", "_rewarder", "_scorings")

    def __init__(self, inner: Any, scorings: Scorings, rewarder: Rewarder) -> None:
        self._inner, self._scorings, self._rewarder = inner, scorings, rewarder
        self._ledger = Ledger()

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        self._ledger.__enter__()
        return entered

    def __exit__(self, *raised: Any) -> Any:
        self._ledger.__exit__()
        label, own = self._rewarder.label, self._rewarder.own
        self._scorings.calls += [call._replace(term=label) if call.term == own else call for call in self._ledger.calls]
        return self._inner.__exit__(*raised)


def tap_regions() -> bool:
    """Has TRL's regions heard, in every module that has imported the function. False if TRL has no such function."""
    original = getattr(sys.modules.get(PROFILING), REGION, None)
    if original is None:
        return False
    if not hasattr(original, TAPPED):
        tapped = functools.wraps(original)(_tapped(original))
        setattr(tapped, TAPPED, True)
        for module in [*sys.modules.values()]:
            namespace = getattr(module, "__dict__", {})
            if namespace.get(REGION) is original:
                namespace[REGION] = tapped
    return True


def _tapped(original: Callable[..., Any]) -> Callable[..., Any]:
    def profiling_context(trainer: Any, name: Any, *args: Any, **kwargs: Any) -> Any:
        # TRL passes these two. To unpack two empty collections would take longer than the call itself.
        more = args or kwargs
        region = original(trainer, name, *args, **kwargs) if more else original(trainer, name)
        scorings = current()
        return scorings.around(region, trainer, name) if isinstance(scorings, Scorings) else region

    return profiling_context


def _in_order_of_calls(trainer: Any, labels: Sequence[str]) -> Mapping[str, Sequence[Rewarder]]:
    """The functions of each name, in the order of their calls. TRL calls the asynchronous ones after all others."""
    names = getattr(trainer, "reward_func_names", None) or ()
    functions = getattr(trainer, "reward_funcs", None) or ()
    found: dict[str, list[Rewarder]] = {}
    together = [*zip(names, labels, functions, strict=False)]
    for name, label, function in sorted(together, key=lambda each: is_async(each[2])):
        module = function if hasattr(function, "named_parameters") else None
        found.setdefault(name, []).append(Rewarder(label, own_term(function), module))
    return found
