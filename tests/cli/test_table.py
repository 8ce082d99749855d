"""What a person sees of a process's series."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.metrics.export import Metric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from rich.console import Group

from akka_otel_callbacks.cli.output import console_on
from akka_otel_callbacks.cli.table import figure, sparkline, tables, unit
from akka_otel_callbacks.common.export.files import MetricFile
from akka_otel_callbacks.common.recording.distributions import Explicit, Exponential, numbers_of
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.scope import SCOPE
from akka_otel_callbacks.reading import Reader, Series, Session
from akka_otel_callbacks.reading.attributes import Labels
from akka_otel_callbacks.reading.points import GAUGE, Key
from tests.report.recordings import record
from tests.support.recordings import session

CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE


def _text(shown: Path | Session, width: int = 120) -> str:
    if isinstance(shown, Path):
        (run,) = Reader([shown]).read()
        shown = run.session
    output = io.StringIO()
    console = console_on(output)
    console.width = width
    console.print(Group(*tables(shown, width)))
    return output.getvalue()


def _gauge(name: str, *values: float, labels: Labels = (), unit: str = "s", scope: str = "", export: int = 1) -> Series:
    series = Series(Key(name, labels, scope, GAUGE), unit, last_export=export)
    series.add(range(1, len(values) + 1), values)
    return series


def _session(*series: Series, exports: int = 1) -> Session:
    return Session({}, exports, {one.key: one for one in series})


def _row(text: str, *starts: str) -> list[str]:
    (line,) = (line for line in text.splitlines() if line.split()[: len(starts)] == list(starts))
    return line.split()


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (None, "–"),
        (0, "0"),
        (3.0, "3"),
        (0.12345, "0.1235"),
        (1e-5, "1e-05"),
        (-2.5, "-2.5"),
        (1234.5, "1,234"),
        (25_000_000, "25,000,000"),
        (1e20, "1e+20"),
        (float("nan"), "nan"),
        (float("-inf"), "-inf"),
    ],
)
def test_figures_are_short_and_exact_enough(value: float | None, shown: str) -> None:
    assert figure(value) == shown


@pytest.mark.parametrize(
    ("ucum", "shown"), [("1", "ratio"), ("By", "bytes"), ("{token}/s", "token/s"), ("s", "s"), ("", ""), ("Cel", "°C")]
)
def test_units_are_words(ucum: str, shown: str) -> None:
    assert unit(ucum) == shown


def test_a_sparkline_follows_its_values() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7]) == "▁▂▃▄▅▆▇█"
    assert sparkline([1, 1, 1]) == "▁▁▁"
    assert sparkline([1]) == sparkline([]) == ""
    assert sparkline([0, float("nan"), 1]) == "▁█"
    assert sparkline([0] * 50 + [1] * 50, width=4) == "▁▁██"


@given(st.lists(st.floats()), st.integers(2, 20))
@example([1e308, 1e308, -1e308, 1e308], 2)
def test_a_sparkline_fits_its_width(values: list[float], width: int) -> None:
    assert len(sparkline(values, width)) <= min(width, len(values))


def test_every_kind_of_series_has_a_row(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    with session(path, "run-7", **{names.ATTR_RUN_METHOD.name: "GRPO"}) as recording:
        for value in (0.25, 0.75):
            term = {names.ATTR_RL_TERM.name: "total"}
            recording.meter.create_gauge(names.RL_STEP_REWARD_TERM.name, "{reward}").set(value, term)
            recording.meter.create_counter(names.RL_STEP_COUNT.name, "{step}").add(1)
            recording.meter.create_histogram("took", "s", explicit_bucket_boundaries_advisory=[1, 3]).record(2)
            recording.export()
    text = _text(path)
    assert _row(text, "rl.step.reward.term") == ["rl.step.reward.term"]
    assert _row(text, "total") == ["total", "0.75", "reward", "0.25", "0.25", "0.75", "▁█"]
    assert _row(text, "rl.step.count") == ["rl.step.count", "2", "step"]  # a counter's course says nothing
    assert _row(text, "took") == ["took", "2", "2", "2", "2", "s"]  # count, mean, p50, p90
    assert "without their prefix akka.optimize.training." in text
    assert "Dim" not in text


def test_negative_rewards_have_no_mean_and_no_percentile_of_their_bucket(tmp_path: Path) -> None:
    """Ten rewards, six of them negative: their histogram as a run writes it."""
    rewards = numbers_of([-2.0, -1.5, -1, -0.5, -0.2, -0.1, 0.35, 0.55, 0.75, 0.95])
    bounds = names.RL_ROLLOUT_REWARD.buckets
    explicit = Explicit.of(rewards.finite, bounds).point({names.ATTR_RL_TERM.name: "total"}, 1, 2)
    exponential = Exponential.of(rewards.finite).point({}, 1, 2)
    metrics = [
        Metric(names.RL_ROLLOUT_REWARD.name, "", "{reward}", sdk.Histogram([explicit], CUMULATIVE)),
        Metric("exponential", "", "{reward}", sdk.ExponentialHistogram([exponential], CUMULATIVE)),
    ]
    scopes = [sdk.ScopeMetrics(InstrumentationScope("test"), metrics, "")]
    MetricFile(tmp_path / "metrics.jsonl").export(sdk.MetricsData([sdk.ResourceMetrics(Resource({}), scopes, "")]))
    text = _text(tmp_path / "metrics.jsonl")
    assert _row(text, "total") == ["total", "10", "–", "–", "0.8", "reward"], "p90 is the top of its bucket"
    *shown, p90, _ = _row(text, "exponential")
    assert shown == ["exponential", "10", "–", "–"]
    assert float(p90) == pytest.approx(0.75, rel=0.01)


def test_a_metric_is_named_once_above_its_series() -> None:
    text = _text(_session(*(_gauge("m", 1.0, labels=(("k", v),)) for v in "ab")))
    lines = [line.rstrip() for line in text.splitlines()]
    assert [line.split() for line in lines[1:4]] == [["m"], ["k=a", "1", "s"], ["k=b", "1", "s"]]
    assert [line.startswith("  ") for line in lines[1:4]] == [False, True, True]


def test_the_longest_name_fits_a_terminal_of_80_columns_and_everything_one_of_104() -> None:
    one = _gauge(names.RL_STEP_COMPLETION_LENGTH_TERMINATED.name, 123456.0, 1.5, unit="{token}")
    text = _text(_session(one), width=80)
    assert "rl.step.completion.length.terminated     1.5  token  █▁" in text
    assert "A terminal of 104 columns also shows" in text
    row = "rl.step.completion.length.terminated     1.5  token  123,456    1.5  123,456  █▁"
    assert row in _text(_session(one), width=104)


@pytest.mark.parametrize(("width", "course"), [(40, 0), (60, 8), (80, 16)])
def test_a_narrow_terminal_has_every_name_and_no_course_that_is_broken(tmp_path: Path, width: int, course: int) -> None:
    lines = _text(record(tmp_path, 19) / "metrics.jsonl", width).splitlines()
    assert max(map(len, lines)) <= width
    joined = "".join(line.split("  ")[0].rstrip() for line in lines)
    assert "rl.step.completion.length" in joined
    assert "rl.step.duration" in joined
    row = next(line for line in lines if line.startswith("rl.step.number"))
    assert sum(character in "▁▂▃▄▅▆▇█" for character in row) == course


@settings(deadline=None)
@given(st.lists(st.floats(-1e9, 1e9, width=32).map(lambda value: value + 0.0), min_size=2, max_size=30))
def test_first_least_and_most_stand_beside_the_course(values: list[float]) -> None:
    row = _row(_text(_session(_gauge("m", *values))), "m")
    assert row[1:6] == [figure(values[-1]), "s", figure(values[0]), figure(min(values)), figure(max(values))]


def test_an_ended_series_is_marked() -> None:
    assert "Dim: not part of the newest export" in _text(_session(_gauge("old", 1.0), exports=2))


def test_somebody_else_s_metric_by_one_of_our_names_hides_none_of_ours() -> None:
    ours, theirs = (_gauge(names.RL_STEP_REWARD.name, value, scope=s) for value, s in ((0.5, SCOPE), (9, "theirs")))
    text = _text(_session(ours, theirs))
    assert ["rl.step.reward", "0.5", "s"] in [line.split() for line in text.splitlines()]
    assert ["rl.step.reward", "(theirs)", "9", "s"] in [line.split() for line in text.splitlines()]


def test_markup_in_foreign_text_is_only_text() -> None:
    text = _text(_session(_gauge("m", 1.0, labels=(("k", "[red]x[/red][/]"),), unit="[bold]")))
    assert "[red]x[/red][/]" in text
    assert "[bold]" in text
