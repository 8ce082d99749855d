"""The rows of a log as the runs that wrote them: each step once, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from akka_otel_callbacks.replay.log import Row


def runs(rows: Iterable[Row], completes: Callable[[Row], bool]) -> list[list[Row]]:
    """The rows of each run, in the order of their steps.

    Where steps that were there come again in their order, the run went on from an earlier one: the later ones count,
    and what followed the earlier ones is of a history that was given up. Where they begin with the run's first step,
    another run begins. A single step that comes late, or once more, goes to its place. A further file that begins
    before the end of the one before is of a restored run or of another one, too.

    Args:
        rows: as they were written.
        completes: whether a row completes a step; any other one, such as an evaluation, goes with the steps around it.
    """
    found: list[_Run] = []
    waiting: list[Row] = []
    rows = [*rows]
    steps = [row for row in rows if completes(row)]
    of_step = {id(row): following for row, following in zip(steps, _following(steps), strict=True)}
    for row in rows:
        if id(row) not in of_step:
            waiting.append(row)
            continue
        run = found[-1] if found else _Run()
        again = run.is_rewound(row, of_step[id(row)])
        behind = [early for early in waiting if again and early.number > row.number]
        run.add(behind)
        if not found or (again and run.is_at_its_begin(row)):
            found.append(run := _Run())
        elif again:
            run.cut(row.number)
        run.add([early for early in waiting if not any(early is left for left in behind)])
        run.complete(row)
        waiting = []
    if waiting:
        found = found or [_Run()]
        found[-1].add(waiting)
    return [run.sorted() for run in found]


def _following(steps: Sequence[Row]) -> list[int | None]:
    """For each row, the number of the next step after it. None for the rows of the last step."""
    found: list[int | None] = []
    later, number = None, None
    for row in reversed(steps):
        if row.number != number:
            later, number = number, row.number
        found.append(later)
    return found[::-1]


class _Run:
    """The history of one run, as far as it was read."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._steps: set[int] = set()
        self._last: Row | None = None

    def is_rewound(self, row: Row, following: int | None) -> bool:
        """Whether the run, or another one, goes on from an earlier step than the last.

        Args:
            row: completes a step.
            following: the number of the step behind it, None where there is none.
        """
        if self._last is None or row.number > max(self._steps):
            return False
        if row.part != self._last.part:
            return True
        if row.number not in self._steps or row.number == self._last.number:
            return False
        return self.is_at_its_begin(row) if following is None else following <= max(self._steps)

    def is_at_its_begin(self, row: Row) -> bool:
        return row.number <= min(self._steps)

    def cut(self, number: int) -> None:
        """Takes back this step and all behind it."""
        self._rows = [row for row in self._rows if row.number < number]
        self._steps = {step for step in self._steps if step < number}

    def add(self, rows: Iterable[Row]) -> None:
        self._rows += rows

    def complete(self, row: Row) -> None:
        self._rows.append(row)
        self._steps.add(row.number)
        self._last = row

    def sorted(self) -> list[Row]:
        return sorted(self._rows, key=lambda row: row.number)
