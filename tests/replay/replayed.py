"""What a replay publishes, by step: over OTLP to a real receiver, as a person would have it sent."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from typer.testing import CliRunner, Result

from akka_otel_callbacks.cli import app
from akka_otel_callbacks.common.vocabulary import names
from tests.support.otlp_sink import otlp_sink
from tests.support.points import Histogram, Point

FIXTURES = Path(__file__).parents[1] / "fixtures" / "replay"
Labels = tuple[Any, ...]
NUMBERS = names.RL_STEP_NUMBER.name, names.SFT_STEP_NUMBER.name


def short(name: str) -> str:
    return name.removeprefix(names.PREFIX)


@dataclass(frozen=True)
class Replayed:
    """What a receiver got of one run."""

    points: list[Point]

    @cached_property
    def numbers(self) -> dict[int, int]:
        """The number of each step by its time."""
        return {point.time_ns: int(point.value) for point in self.points if point.name in NUMBERS}

    @cached_property
    def gauges(self) -> dict[int, dict[tuple[str, Labels], float]]:
        """By time, each gauge by its name without the prefix and its labels."""
        found: dict[int, dict[tuple[str, Labels], float]] = defaultdict(dict)
        for point in self.points:
            if point.kind == "gauge":
                found[point.time_ns][short(point.name), tuple(point.attributes.values())] = point.value
        return found

    def of_steps(self) -> dict[int, dict[tuple[str, Labels], float]]:
        """By the number of a step, its gauges."""
        return {number: self.gauges[time_ns] for time_ns, number in self.numbers.items()}

    def series(self, name: str, *labels: Any) -> list[float]:
        """The values of a gauge or counter in the order of time."""
        found = [p for p in self.points if short(p.name) == name and tuple(p.attributes.values()) == labels]
        return [point.value for point in sorted(found, key=lambda point: point.time_ns)]

    def histogram(self, name: str) -> Histogram:
        return max((p for p in self.points if short(p.name) == name), key=lambda point: point.time_ns).histogram

    @property
    def resource(self) -> Mapping[str, Any]:
        return {short(name): value for name, value in self.points[0].resource.items()}

    @property
    def names(self) -> set[str]:
        return {short(point.name) for point in self.points}


def command(*arguments: Any, environ: Mapping[str, str] | None = None) -> Result:
    return CliRunner().invoke(app, ["replay", *map(str, arguments)], env=dict(environ or {}))


@contextmanager
def sent(*paths: Any, environ: Mapping[str, str] | None = None) -> Iterator[tuple[list[Replayed], Result]]:
    """The runs of a log, in their order, and what the command said."""
    with otlp_sink() as sink:
        result = command(*paths, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": sink.http, **(environ or {})})
        by_run: dict[str, list[Point]] = defaultdict(list)
        for point in sink.metrics():
            by_run[point.resource[names.ATTR_RUN_ID.name]].append(point)
        yield [Replayed(points) for points in by_run.values()], result


def replayed(*paths: Any) -> Replayed:
    """The only run of a log."""
    with sent(*paths) as (runs, result):
        assert result.exit_code == 0, result.output
        (run,) = runs
        return run
