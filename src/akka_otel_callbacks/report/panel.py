"""What a panel of the page consists of."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.report.drawing import Drawing, Heat
from akka_otel_callbacks.report.drawn import Mark
from akka_otel_callbacks.report.history import History


@dataclass(frozen=True, slots=True)
class Chart:
    """One pair of axes.

    Attributes:
        title: stands above it where its panel has several.
        drawings: those of the left axis have one unit, and those of the right axis too.
        marks: what happened at a step.
        limits: what the left axis must not pass, by name.
        heat: a heat map in place of all these.
    """

    drawings: Sequence[Drawing] = ()
    title: str = ""
    marks: Sequence[Callable[[History], Iterable[Mark]]] = ()
    limits: Callable[[History], Iterable[tuple[str, float]]] = lambda run: ()
    heat: Heat | None = None

    @property
    def metrics(self) -> list[Metric]:
        """What it shows where a run has everything."""
        drawn = [metric for drawing in self.drawings for metric in drawing.metrics]
        return [*drawn, self.heat.metric] if self.heat else drawn


@dataclass(frozen=True, slots=True)
class Panel:
    """Some charts that answer one question.

    Attributes:
        name: what the page's addresses call it.
        question: what a reader wants to know of it.
        words: what it says in words, a line each.
        also: the figures behind these words and behind marks.
    """

    name: str
    title: str
    question: str
    charts: Sequence[Chart]
    words: Callable[[History], Iterable[str]] = lambda run: ()
    also: Sequence[Metric] = ()
    wide: bool = False

    @property
    def metrics(self) -> list[Metric]:
        """What it shows where a run has everything."""
        return [*(metric for chart in self.charts for metric in chart.metrics), *self.also]
