"""Combines the samples between two exports: one small accumulator per series and rule."""

from __future__ import annotations

from typing import Protocol

from akka_otel_callbacks.common.gpu.readings import Rule


class Window(Protocol):
    def add(self, value: float | None) -> None:
        """Takes a sample in. None is a sample that NVML did not give."""

    def take(self) -> float | None:
        """The figure of the samples since the last call; of the window before where there was none since. None where
        none of them had a value."""


class Mean:
    """A mean carries its sum and its count, so that no mean of means can happen."""

    def __init__(self) -> None:
        self._sum, self._count, self._tries = 0.0, 0, 0
        self._figure: float | None = None

    def add(self, value: float | None) -> None:
        self._tries += 1
        if value is not None:
            self._sum += value
            self._count += 1

    def take(self) -> float | None:
        if self._tries:
            self._figure = self._sum / self._count if self._count else None
            self._sum, self._count, self._tries = 0.0, 0, 0
        return self._figure


class Bits:
    """Every bit that was set in any sample."""

    def __init__(self) -> None:
        self._bits: int | None = None
        self._tries = 0
        self._figure: int | None = None

    def add(self, value: float | None) -> None:
        self._tries += 1
        if value is not None:
            self._bits = (self._bits or 0) | int(value)

    def take(self) -> float | None:
        if self._tries:
            self._figure = self._bits
            self._bits, self._tries = None, 0
        return self._figure


class Latest:
    def __init__(self) -> None:
        self._figure: float | None = None

    def add(self, value: float | None) -> None:
        self._figure = value

    def take(self) -> float | None:
        return self._figure


class Growth:
    """What a total has grown by since the first sample. A total that falls was reset with its driver or GPU, and
    counts on from there; one that can no longer be read stays at what was counted."""

    def __init__(self) -> None:
        self._previous: float | None = None
        self._figure: float | None = None

    def add(self, value: float | None) -> None:
        if value is None:
            return
        if self._previous is None:
            self._figure = value - value  # a zero of the same type: a series must not change from int to float
        elif self._figure is not None:
            self._figure += value - self._previous if value >= self._previous else value
        self._previous = value

    def take(self) -> float | None:
        return self._figure


WINDOWS: dict[Rule, type[Window]] = {Rule.MEAN: Mean, Rule.BITS: Bits, Rule.LATEST: Latest, Rule.GROWTH: Growth}
