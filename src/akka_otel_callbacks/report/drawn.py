"""What stands in a chart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    """The values of one legend entry. None where the figure is absent at that step."""

    name: str
    values: Sequence[float | None]


@dataclass(frozen=True, slots=True)
class Drawn:
    """A line, a band or a stack in a chart.

    Attributes:
        form: `line`, a line with its `points`, `dots` without a line, the `band` between its two rows, or a
            `stack` of its rows.
        unit: UCUM, as in the registry.
        right: whether it has the axis on the right.
        quiet: whether it stands back behind what matters most in the chart.
        x: steps, ascending, for all rows.
    """

    form: str
    unit: str
    x: Sequence[float]
    rows: Sequence[Row]
    right: bool = False
    quiet: bool = False


@dataclass(frozen=True, slots=True)
class Mark:
    """Something that happened at a step."""

    x: float
    text: str
    bad: bool = False
