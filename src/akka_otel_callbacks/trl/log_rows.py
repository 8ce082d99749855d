"""What the trainer's log rows add to a step: only figures that the step lacks.

A row does not belong to one step: transformers averages its loss over the steps since the row before, and replaces a
NaN by the mean of the good values (`logging_nan_inf_filter`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from akka_otel_callbacks.common.numbers import number
from akka_otel_callbacks.common.recording.recorder import Recorder
from akka_otel_callbacks.common.vocabulary.step import Step

OF_EVERY_TRAINER = ("loss", "grad_norm", "learning_rate")
"""The keys that transformers itself logs: a loss over all processes, and the latest step's norm and rate."""


class LogRows:
    """The rows of one training. It follows the translated steps, on the translator's thread.

    Args:
        translate: turns the values of log keys into figures.
        everything: whether every key counts, for a trainer that has no other figures than its rows.
        nan_filter: the trainer's `logging_nan_inf_filter`.
    """

    def __init__(self, translate: Callable[[Mapping[str, Any]], Step], *, everything: bool, nan_filter: bool) -> None:
        self._translate = translate
        self.everything = everything
        self._nan_filter = nan_filter
        self._step: Step | None = None
        self._loss_is_spoilt = False

    def capture(self, row: Mapping[str, Any], number: int) -> RowCapture | None:
        """The capture of a row that was logged after the step of this number. None if it can add nothing."""
        kept = row if self.everything else {key: row[key] for key in OF_EVERY_TRAINER if key in row}
        return RowCapture(self, number, dict(kept)) if kept else None

    def follow(self, step: Step) -> None:
        """Takes note of a translated step."""
        self._step = step
        self._loss_is_spoilt |= _is_broken(number(getattr(step, "loss", None)))
        self._check_norm(step)

    def addition(self, row: Mapping[str, Any], number: int) -> Step | None:
        """The figures of the row that its step lacks. None if that step is not the latest one that was translated."""
        if self._step is None or self._step.number != number:
            return None
        step = self._translate(row)
        for own in fields(self._step):
            if getattr(self._step, own.name) not in (None, {}):
                setattr(step, own.name, None)
        if "loss" in row:
            self._check_norm(step)  # of a sharded gradient only the row has it
            self._check_loss(step)
        return step

    def _check_norm(self, step: Step) -> None:
        """Notes a NaN of another process. It shows only in the common gradient, and the filter hides it from the row's
        loss."""
        self._loss_is_spoilt |= self._nan_filter and _is_broken(number(step.grad_norm))

    def _check_loss(self, step: Step) -> None:
        """Drops the loss of an interval that had a NaN in it. Without the filter, transformers never gets rid of the
        NaN: the sum that it means to empty stays NaN, and so do all later rows."""
        loss = number(getattr(step, "loss", None))
        if self._loss_is_spoilt and loss is not None:
            step.loss = None  # type: ignore[union-attr]
        self._loss_is_spoilt = not self._nan_filter and (self._loss_is_spoilt or _is_broken(loss))


def _is_broken(value: float | None) -> bool:
    return value is not None and not math.isfinite(value)


@dataclass(slots=True)
class RowCapture:
    """One row on its way to the steps."""

    rows: LogRows
    number: int
    row: dict[str, Any]

    def deliver(self, recorder: Recorder) -> None:
        if (addition := self.rows.addition(self.row, self.number)) is not None:
            recorder.record(addition)
