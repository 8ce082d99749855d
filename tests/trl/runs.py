"""One training with the telemetry exported over real OTLP, and what the trainer itself logged beside it."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from transformers import Trainer, TrainerCallback

from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import Histogram, Point, newest

FLUSH_S = 20.0
Make = Callable[[list[TrainerCallback]], Trainer]
Figures = dict[str, dict[Any, float]]
"""By metric name and label (the value of a point's only attribute, None without one)."""


@contextmanager
def environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Sets the variables for a while."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


class Clock(TrainerCallback):
    """`time.perf_counter` at the events of each step. One before our callback and one behind it enclose its clock."""

    def __init__(self) -> None:
        self.at: dict[tuple[str, int], float] = {}
        self.cut: dict[int, list[tuple[float, float]]] = {}
        """By step, the begin and end of each part of it that an epoch's end cut short."""
        self._in_step = False

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._in_step = False

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        step = state.global_step + 1
        if self._in_step:
            self.cut.setdefault(step, []).append((self.at["begin", step], self.at["micro-batch", step]))
        self._in_step = True
        self.at["begin", step] = time.perf_counter()

    def on_epoch_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.at["micro-batch", state.global_step + 1] = time.perf_counter()

    def on_pre_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.at["gradients", state.global_step + 1] = time.perf_counter()

    def on_optimizer_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.at["optimized", state.global_step + 1] = time.perf_counter()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._in_step = False
        self.at["end", state.global_step] = time.perf_counter()


def enclosed(before: Clock, behind: Clock, start: str, end: str, step: int) -> tuple[float, float]:
    """The least and the most seconds that a clock between the two may have counted from one event of a step to another.
    What came between the parts of a step is no part of it."""
    bounds = []
    for first, last in ((behind, before), (before, behind)):
        seconds = last.at[end, step] - first.at[start, step]
        if start == "begin":
            parts = zip(first.cut.get(step, ()), last.cut.get(step, ()), strict=True)
            seconds += sum(cut_at - begun_at for (begun_at, _), (_, cut_at) in parts)
        bounds.append(seconds)
    return bounds[0] * (1 - 1e-9), bounds[1] * (1 + 1e-9)


class Rows(TrainerCallback):
    """The log rows as the trainer hands them out."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, dict[str, Any]]] = []

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self.rows.append((state.global_step, dict(logs)))


class Exports(TrainerCallback):
    """Stands behind our callback and has everything exported after each event that may have changed a figure."""

    def __init__(self, callback: AkkaTelemetryCallback, sink: OtlpSink) -> None:
        self._callback, self._sink = callback, sink
        self.exports: dict[tuple[str, int], int] = {}
        """By event and step, the number of the export that followed."""

    def _export(self, event: str, step: int) -> None:
        telemetry = self._callback.telemetry
        if telemetry is None:  # an evaluation by itself, which is exported already
            self.exports[event, step] = metric_exports(self._sink) - 1
            return
        assert telemetry.flush(FLUSH_S), "the export did not end in time"
        self.exports[event, step] = metric_exports(self._sink) - 1

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._export("step", state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._export("log", state.global_step)

    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._export("evaluate", state.global_step)

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._export("save", state.global_step)


@dataclass
class Run:
    """What is left of a training."""

    sink: OtlpSink
    before: Clock
    behind: Clock
    rows: list[tuple[int, dict[str, Any]]]
    exports: Mapping[tuple[str, int], int] = field(default_factory=dict)
    parameters: Mapping[str, torch.Tensor] = field(default_factory=dict)
    random_states: tuple[Any, ...] = ()
    """Of Python, numpy and torch at the end."""
    trainer: Any = None
    """Kept only where a test asks for it."""
    error: BaseException | None = None

    def __post_init__(self) -> None:
        self._points: dict[int, list[Point]] | None = None

    # -- what was exported

    def points(self, step: int | None = None, event: str = "step") -> list[Point]:
        """What the export that followed that event of that step shows; without a step, the last export."""
        if self._points is None:
            self._points = {}
            for point in self.sink.metrics():
                self._points.setdefault(point.export, []).append(point)
        return newest(self._points[max(self._points) if step is None else self.exports[event, step]])

    def figures(self, step: int | None = None, event: str = "step") -> Figures:
        """The gauges of one export."""
        found: Figures = {}
        for point in self.points(step, event):
            if point.kind == "gauge":
                assert label(point) not in found.setdefault(point.name, {}), f"{point.name} {label(point)} came twice"
                found[point.name][label(point)] = point.value
        return found

    def shown(self, metric: Any, step: int | None = None, of: Any = None, event: str = "step") -> float | None:
        """One gauge or counter; None where it has no point."""
        return next((p.value for p in self.points(step, event) if p.name == metric.name and label(p) == of), None)

    def histogram(self, metric: Any, step: int | None = None, of: Any = None, event: str = "step") -> Histogram | None:
        """One histogram, with everything since the training began."""
        return next((p.histogram for p in self.points(step, event) if p.name == metric.name and label(p) == of), None)

    @property
    def steps(self) -> list[int]:
        return sorted({step for event, step in self.exports if event == "step"})

    # -- what the trainer said

    def row(self, step: int) -> dict[str, Any]:
        """The training's log row of a step."""
        return next(row for at, row in self.rows if at == step and "loss" in row)


def label(point: Point) -> Any:
    values = tuple(point.attributes.values())
    return values[0] if len(values) == 1 else (values or None)


def metric_exports(sink: OtlpSink) -> int:
    return sum("metrics" in path.lower() for _, path, _ in sink.requests)


def seed_everything(seed: int = 0) -> None:
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)


def parameters_of(trainer: Trainer) -> dict[str, torch.Tensor]:
    return {name: tensor.detach().clone() for name, tensor in trainer.model.state_dict().items()}


def random_states() -> tuple[Any, ...]:
    return (
        random.getstate(),
        repr(numpy.random.get_state(legacy=False)),  # type: ignore[call-overload]
        torch.random.get_rng_state().tolist(),
    )


def plain_run(make: Make, drive: Callable[[Trainer], Any] = lambda trainer: trainer.train()) -> Run:
    """The training without any telemetry."""
    rows, before, behind = Rows(), Clock(), Clock()
    seed_everything()
    trainer = make([before, rows, behind])
    drive(trainer)
    return Run(
        OtlpSink("", ""),
        before,
        behind,
        rows.rows,
        parameters=parameters_of(trainer),
        random_states=random_states(),
    )


def exported_run(
    make: Make,
    drive: Callable[[Trainer], Any] = lambda trainer: trainer.train(),
    *,
    callback: AkkaTelemetryCallback | None = None,
    protocol: str = "http/protobuf",
    variables: Mapping[str, str] | None = None,
    at_each_event: bool = True,
    keep_trainer: bool = False,
    expected: tuple[type[BaseException], ...] = (),
) -> Run:
    """The training with the telemetry sent to a receiver.

    Args:
        make: makes the trainer with the callbacks that it is given.
        drive: what to do with it.
        callback: ours, where it is not the default one.
        protocol: of OTLP.
        variables: more of the environment.
        at_each_event: export after each event instead of at the end only.
        keep_trainer: leave the trainer in the run.
        expected: exceptions that `drive` may raise.
    """
    ours = callback or AkkaTelemetryCallback()
    rows, before, behind = Rows(), Clock(), Clock()
    error: BaseException | None = None
    with otlp_sink() as sink:
        exports = Exports(ours, sink)
        own: Sequence[TrainerCallback] = (exports,) if at_each_event else ()
        endpoint = sink.grpc if protocol == "grpc" else sink.http
        otlp = {"OTEL_EXPORTER_OTLP_ENDPOINT": endpoint, "OTEL_EXPORTER_OTLP_PROTOCOL": protocol}
        with environment({**otlp, **(variables or {})}):
            seed_everything()
            trainer = make([before, ours, behind, rows, *own])
            try:
                drive(trainer)
            except expected as raised:
                error = raised
            assert ours.telemetry is None, "what is open outlives the training"
    return Run(
        sink,
        before,
        behind,
        rows.rows,
        exports.exports,
        parameters_of(trainer),
        random_states(),
        trainer if keep_trainer else None,
        error,
    )
