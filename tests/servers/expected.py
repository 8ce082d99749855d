"""What each query is to give that is more than a series or one aggregation of a series, by what asks it.

Nothing here comes from a server's PromQL: it is computed from the runs' own files, from what the runs were given, or
from the samples that the server was given.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Attribute, Metric
from tests.servers.replay import SCRAPE_S
from tests.servers.world import Answer
from tools.prometheus import label_name, series_name

Check = Callable[[Answer], None]
WINDOW_S = 6 * 3600.0
"""What stands for Grafana's `$__rate_interval`."""
SLACK = 1.25
"""Prometheus extrapolates an increase beyond the samples of its window."""


def value(answer: Answer, metric: Metric, part: str = "", matchers: str = "") -> float:
    """A figure at the end of its run, of the only series that fits."""
    return answer.truth.value(series_name(metric, answer.dialect) + part, matchers)


def mean(answer: Answer, histogram: Metric) -> float:
    """Over all that was recorded."""
    return value(answer, histogram, "_sum") / value(answer, histogram, "_count")


# -- at the end of the runs


def gives(expected: Callable[[Answer], Sequence[float]]) -> Check:
    """These values at the end."""

    def check(answer: Answer) -> None:
        assert answer.values == pytest.approx(sorted(expected(answer)), rel=1e-6)

    return check


def joined(*metrics: Metric, matchers: str = "") -> Check:
    """The greatest figure of each GPU, by the GPU that a process holds."""

    def check(answer: Answer) -> None:
        by_gpu: dict[str, list[float]] = defaultdict(list)
        for metric in metrics:
            for figure in answer.truth.select(series_name(metric, answer.dialect), matchers):
                by_gpu[figure.labels["hw_id"]].append(figure.value)
        found = {sample.labels["hw_id"]: sample for sample in answer.now}
        assert {gpu: sample.value for gpu, sample in found.items()} == {gpu: max(all_) for gpu, all_ in by_gpu.items()}
        _check_holders(answer)

    return check


def joined_with(others: Mapping[str, float]) -> Check:
    """What another program says of the GPUs that a process holds."""

    def check(answer: Answer) -> None:
        assert answer.now
        assert {sample.value for sample in answer.now} <= {*others.values()}
        assert all(sample.value == others[sample.labels["hw_id"]] for sample in answer.now)
        _check_holders(answer)

    return check


def states(answer: Answer) -> None:
    """The state that each GPU is in."""
    found = {(sample.labels["hw_id"], sample.labels["hw_state"]) for sample in answer.now}
    figures = answer.truth.select(series_name(names.HW_STATUS, answer.dialect))
    assert found == {(f.labels["hw_id"], f.labels["hw_state"]) for f in figures if f.value == 1}
    assert {*answer.values} == {1}


def _check_holders(answer: Answer) -> None:
    """Each series says who holds the GPU, as the placement does."""
    held = answer.truth.select(series_name(names.JOB_PLACEMENT, answer.dialect))
    wanted = [label_name(a.name, answer.dialect) for a in names.JOB_PLACEMENT.attributes]
    places = {tuple(figure.labels.get(label, "") for label in wanted) for figure in held}
    assert {tuple(sample.labels.get(label, "") for label in wanted) for sample in answer.now} <= places


def since_the_last_step(metric: Metric, run: str) -> Check:
    """Seconds since the counter last went up, to the minute."""

    def check(answer: Answer) -> None:
        samples = dict(_of_run(answer, metric, run)[0])
        changed = max(at for at in samples if samples[at] != samples.get(at - SCRAPE_S))
        assert answer.values == [pytest.approx(max(samples) - changed, abs=2 * SCRAPE_S)]

    return check


# -- in their course


def only(*values: float, runs: Sequence[str] = ()) -> Check:
    """At times a result, with no other values, of these runs where the result says which."""

    def check(answer: Answer) -> None:
        assert {value for _, found in answer.course for value in found} <= {*values}
        said = {labels["akka_optimize_training_run_id"] for labels, _ in answer.course if runs}
        assert said == {*runs}

    return check


def earlier(metric: Metric, run: str, seconds: float) -> Check:
    """What the server had been given that long before the end."""

    def check(answer: Answer) -> None:
        samples = dict(_of_run(answer, metric, run)[0])
        assert answer.values == [pytest.approx(samples[max(samples) - seconds], rel=1e-9)]

    return check


def counted(metric: Metric, *by: Attribute, part: str = "", window_s: float = WINDOW_S, rate: bool = True) -> Check:
    """A counter's increase within the window, in all or per second, by some of its attributes. A server may take the
    first value of a series for an increase, and may not. Prometheus divides it by the window, and VictoriaMetrics by
    the time that it has samples of."""

    def check(answer: Answer) -> None:
        low, high = _increases(answer, metric, by, part, window_s)
        seen_s = min(window_s, _shortest_s(answer, metric, part))
        labels = [label_name(attribute.name, answer.dialect) for attribute in by]
        for sample in answer.now:
            key = tuple(sample.labels.get(label, "") for label in labels)
            most, least = (sample.value * (seconds if rate else 1) for seconds in (window_s, seen_s))
            assert low[key] / SLACK <= most, (key, most, low[key])
            assert least <= high[key] * SLACK, (key, least, high[key])
        assert {tuple(sample.labels.get(label, "") for label in labels) for sample in answer.now} == {*high}

    return check


def mean_of(histogram: Metric, *by: Attribute) -> Check:
    """The mean of what a histogram recorded within the window. A group that recorded nothing has none."""
    return quotient((histogram, "_sum"), (histogram, "_count"), *by)


def quotient(upper: tuple[Metric, str], lower: tuple[Metric, str], *by: Attribute) -> Check:
    """One increase by the other: of what came after the first sample, or of all."""

    def check(answer: Answer) -> None:
        uppers = _increases(answer, *upper[:1], by, upper[1], WINDOW_S)
        lowers = _increases(answer, *lower[:1], by, lower[1], WINDOW_S)
        labels = [label_name(attribute.name, answer.dialect) for attribute in by]
        assert answer.now or answer.minutes
        for sample in answer.now:
            key = tuple(sample.labels.get(label, "") for label in labels)
            possible = [up[key] / low[key] for up, low in zip(uppers, lowers, strict=True) if low[key]]
            assert min(possible) / SLACK <= sample.value <= max(possible) * SLACK, (key, sample.value, possible)

    return check


def quantile_of(histogram: Metric, *by: Attribute) -> Check:
    """Not more than the bucket of the greatest value has."""

    def check(answer: Answer) -> None:
        greatest = {point.histogram.max for point in answer.files if point.name == histogram.name and point.histogram}
        assert answer.values
        assert all(0 <= found <= max(greatest) * 2.5 for found in answer.values)

    return check


def buckets_of(histogram: Metric, matchers: str = "") -> Check:
    """Counts by bound, of which none is more than all that were recorded. VictoriaMetrics decides for each bucket by
    itself whether its first value is an increase, so that they need not grow with the bound there."""

    def check(answer: Answer) -> None:
        counts = [sample.value for sample in answer.now]
        assert len(counts) == len({sample.labels["le"] for sample in answer.now}) > 10
        total = sum(f.value for f in answer.truth.select(f"{series_name(histogram, answer.dialect)}_count", matchers))
        assert 0 <= min(counts) < max(counts) <= total * SLACK

    return check


def _increases(
    answer: Answer, metric: Metric, by: Sequence[Attribute], part: str, window_s: float
) -> tuple[dict[tuple[str, ...], float], dict[tuple[str, ...], float]]:
    """By the attributes' values: what came after the first sample of the window, and that with the first sample. Of the
    run that the query asks for, where it asks for one."""
    low: dict[tuple[str, ...], float] = defaultdict(float)
    high: dict[tuple[str, ...], float] = defaultdict(float)
    labels = [label_name(attribute.name, answer.dialect) for attribute in by]
    series = series_name(metric, answer.dialect) + part
    asked = re.search(r'run_id=~?"([^"]+)"', answer.expression)
    end = max(course.samples[-1][0] for course in answer.replayed if course.samples)
    for course in answer.replayed:
        values = [found for at, found in course.samples if at >= end - window_s]
        run = course.labels.get("akka_optimize_training_run_id", "")
        if course.labels["__name__"] == series and values and (asked is None or re.fullmatch(asked[1], run)):
            key = tuple(course.labels.get(label, "") for label in labels)
            low[key] += values[-1] - values[0]
            high[key] += values[-1]
    return low, high


def _shortest_s(answer: Answer, metric: Metric, part: str) -> float:
    """The time that the youngest of a metric's series has samples of."""
    series = series_name(metric, answer.dialect) + part
    found = [course.samples for course in answer.replayed if course.labels["__name__"] == series]
    return min(samples[-1][0] - samples[0][0] for samples in found)


def _of_run(answer: Answer, metric: Metric, run: str) -> list[tuple[tuple[float, float], ...]]:
    """The samples of each of a metric's series of a run."""
    series = series_name(metric, answer.dialect)
    found = [
        course.samples
        for course in answer.replayed
        if course.labels["__name__"] == series and course.labels.get("akka_optimize_training_run_id") == run
    ]
    assert found
    return found


def without_dialect(where: str) -> str:
    """What asks a query, without the folder or file that names the dialect."""
    return re.sub(r"^deploy/(?:grafana/\w+/|alerts/\w+\.yml: )", "", where)
