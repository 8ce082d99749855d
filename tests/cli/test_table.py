"""What a person sees of a recording."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from opentelemetry.sdk.metrics import export as sdk
from opentelemetry.sdk.metrics.export import Metric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from akka_otel_callbacks.cli import figures
from akka_otel_callbacks.cli.figures import Recording, Series, Session
from akka_otel_callbacks.cli.output import console_on
from akka_otel_callbacks.cli.table import figure, sparkline, summary, unit
from akka_otel_callbacks.common.export.files import MetricFile
from akka_otel_callbacks.common.recording.distributions import Explicit, Exponential, numbers_of
from akka_otel_callbacks.common.vocabulary import names
from tests.cli.recordings import session

CUMULATIVE = sdk.AggregationTemporality.CUMULATIVE


def _text(recording: Recording, **options: bool) -> str:
    output = io.StringIO()
    console_on(output).print(summary(recording, **options))
    return output.getvalue()


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
    text = _text(figures.read(path))
    assert "run-7 · GRPO · 2 exports" in text
    assert _row(text, "rl.step.reward.term") == ["rl.step.reward.term"]
    assert _row(text, "total") == ["total", "0.75", "reward", "▁█"]
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
    text = _text(figures.read(tmp_path / "metrics.jsonl"))
    assert _row(text, "total") == ["total", "10", "–", "–", "0.8", "reward"], "p90 is the top of its bucket"
    *shown, p90, _ = _row(text, "exponential")
    assert shown == ["exponential", "10", "–", "–"]
    assert float(p90) == pytest.approx(0.75, rel=0.01)


def test_a_metric_is_named_once_above_its_series() -> None:
    series = {("m", (("k", v),)): Series("m", (("k", v),), "s", values=[1.0], last_export=1) for v in "ab"}
    lines = [line.rstrip() for line in _text(Recording([Session({}, 1, series)])).splitlines()]
    assert lines[0] == "unnamed run · 1 export"
    assert [line.split() for line in lines[2:5]] == [["m"], ["a", "1", "s"], ["b", "1", "s"]]
    assert [line.startswith("  ") for line in lines[2:5]] == [False, True, True]


def test_the_longest_name_fits_a_terminal_of_80_columns() -> None:
    one = Series(names.RL_STEP_COMPLETION_LENGTH_TERMINATED.name, (), "{token}", values=[123456.0, 1.5], last_export=1)
    output = io.StringIO()
    console = console_on(output)
    console.width = 80
    console.print(summary(Recording([Session({}, 1, {(one.name, ()): one})])))
    assert "rl.step.completion.length.terminated     1.5  token  █▁" in output.getvalue()


def test_an_ended_series_is_marked() -> None:
    old = Series("old", (), "s", values=[1.0], last_export=1)
    assert "Dim: not part of the newest export" in _text(Recording([Session({}, 2, {("old", ()): old})]))


def test_only_the_newest_session_unless_asked_and_losses_are_told() -> None:
    def run(name: str) -> Session:
        one = Series("m", (), "", values=[1.0], last_export=1)
        return Session({names.ATTR_RUN_ID.name: name}, 1, {("m", ()): one})

    recording = Recording([run("old"), run("new")], lines=3, unreadable=1)
    text = _text(recording)
    assert "new ·" in text
    assert "old ·" not in text
    assert "1 earlier session in this file: --all shows them too." in text
    assert "1 of 3 lines could not be read" in text
    everything = _text(recording, every_session=True)
    assert everything.index("old ·") < everything.index("new ·")
    assert "earlier session" not in everything


def test_markup_in_foreign_text_is_only_text() -> None:
    one = Series("m", (("k", "[red]x[/red][/]"),), "[bold]", values=[1.0], last_export=1)
    text = _text(Recording([Session({names.ATTR_RUN_ID.name: "[/]"}, 1, {("m", one.labels): one})]))
    assert "[red]x[/red][/]" in text
    assert "[bold]" in text
