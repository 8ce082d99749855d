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
from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.function import is_async, own_term
from akka_otel_callbacks.common.graders.ledger import Ledger
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.trl.device_clock import DeviceClock, device_clock

PROFILING, REGION = "trl.extras.profiling", "profiling_context"
TAPPED = "__akka_otel_tapped__"

_scoring: dict[int, Scorings] = {}
"""By the ID of its trainer, each that is under way."""


class Rewarder(NamedTuple):
    """One reward function."""

    label: str
    """Of its term."""
    own: str | None
    """The term that it notes its calls under by itself."""
    module: Any
    """The reward model; None of a function."""


class Entry(NamedTuple):
    """One reward function that has scored a batch."""

    rewarder: Rewarder
    seconds: float
    calls: Sequence[Call]
    """That were made within it."""
    device: DeviceClock | None


class Scorings:
    """The reward functions of a trainer, and how long they take."""

    def __init__(self, trainer: Any, labels: Sequence[str]) -> None:
        self._trainer = weakref.ref(trainer) if trainer is not None else lambda: None
        self._rewarders = _in_order_of_calls(trainer, labels)
        self._entries: list[Entry] = []
        self._begun: dict[str, int] = {}
        self._ledger = Ledger()
        self.heard = False
        """Whether TRL entered a region of theirs so far."""

    def begin(self) -> None:
        """The trainer is about to have a batch scored. Where that failed before, it starts anew."""
        self.end(0)
        self._begun = {}
        self._ledger.__enter__()
        _scoring[id(self._trainer())] = self

    def end(self, rows: int) -> Batch:
        """The batch is scored."""
        if _scoring.pop(id(self._trainer()), None) is not None:
            self._ledger.__exit__()
        batch = Batch(rows, self._entries, self._ledger.calls)
        self._entries, self._ledger = [], Ledger()
        return batch

    @guarded
    def entered(self, trainer: Any, name: str) -> Rewarder | None:
        """The function whose region is entered; None where the region is another one."""
        rewarders = self._rewarders.get(name)
        if rewarders is None or self._trainer() is not trainer:
            return None
        at = self._begun[name] = self._begun.get(name, -1) + 1
        self.heard = True
        return rewarders[at % len(rewarders)]

    def add(self, entry: Entry) -> None:
        self._entries.append(entry)


class Batch(NamedTuple):
    """What scored one batch."""

    rows: int
    entries: Sequence[Entry]
    others: Sequence[Call]
    """That were made within none of them, as in a trainer of a user's own."""

    def calls(self) -> Iterable[Call]:
        """On the translator's thread."""
        yield from self.others
        for rewarder, seconds, calls, device in self.entries:
            yield from _relabelled(calls, rewarder)
            if rewarder.own is None and self.rows:
                took = seconds if device is None else device.seconds()
                yield Call(rewarder.label, took / self.rows, self.rows)

    @property
    def values_held(self) -> int:
        return len(self.others) + sum(self.rows + len(entry.calls) for entry in self.entries)


class _Region:
    """TRL's own context, with a clock within it."""

    __slots__ = ("_device", "_inner", "_ledger", "_rewarder", "_scorings", "_start")

    def __init__(self, inner: Any, scorings: Scorings, rewarder: Rewarder) -> None:
        self._inner, self._scorings, self._rewarder = inner, scorings, rewarder
        self._ledger = Ledger()

    def __enter__(self) -> Any:
        entered = self._inner.__enter__()
        self._ledger.__enter__()
        self._device = None if self._rewarder.module is None else device_clock(self._rewarder.module)
        self._start = perf_counter()
        return entered

    def __exit__(self, *raised: Any) -> Any:
        seconds = perf_counter() - self._start
        if self._device is not None:
            self._device.stop()
        self._ledger.__exit__()
        self._scorings.add(Entry(self._rewarder, seconds, self._ledger.calls, self._device))
        return self._inner.__exit__(*raised)


def tap_regions() -> bool:
    """Has TRL's regions heard, wherever a trainer's module has a copy of the function. False where there is none."""
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
        region = original(trainer, name, *args, **kwargs)
        scorings = _scoring.get(id(trainer))
        if scorings is None:
            return region
        rewarder = scorings.entered(trainer, name)
        return region if rewarder is None else _Region(region, scorings, rewarder)

    return profiling_context


def _in_order_of_calls(trainer: Any, labels: Sequence[str]) -> Mapping[str, Sequence[Rewarder]]:
    """By name, the functions that have it. TRL calls the asynchronous ones after all others."""
    names = getattr(trainer, "reward_func_names", None) or ()
    functions = getattr(trainer, "reward_funcs", None) or ()
    found: dict[str, list[Rewarder]] = {}
    together = [*zip(names, labels, functions, strict=False)]
    for name, label, function in sorted(together, key=lambda each: is_async(each[2])):
        module = function if hasattr(function, "named_parameters") else None
        found.setdefault(name, []).append(Rewarder(label, own_term(function), module))
    return found


def _relabelled(calls: Iterable[Call], rewarder: Rewarder) -> Iterable[Call]:
    """A second function of a name has a label of its own."""
    return [call._replace(term=rewarder.label) if call.term == rewarder.own else call for call in calls]
