"""Names of the registry in queries become those of a dialect, and everything else stays."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.deploy.promtool import REGISTRY
from tools import generate
from tools.deploy import deployment
from tools.deploy.form import DashboardForm, FormError, read
from tools.deploy.notation import Notation, UnknownName
from tools.deploy.units import grafana_unit
from tools.model import Metric, short
from tools.prometheus import DIALECTS, Dialect, all_series, label_name

BY_DIALECT = {dialect: Notation(REGISTRY, dialect) for dialect in DIALECTS}


@pytest.mark.parametrize(
    ("dialect", "written"),
    [
        ("scrape", 'akka_optimize_training_rl_step_mfu{akka_optimize_training_run_id="a"} > 0'),
        ("collector", 'akka_optimize_training_rl_step_mfu_ratio{akka_optimize_training_run_id="a"} > 0'),
        ("utf8", '{"akka.optimize.training.rl.step.mfu_ratio", "akka.optimize.training.run.id"="a"} > 0'),
    ],
)
def test_a_selector_is_written_as_the_dialect_has_it(dialect: Dialect, written: str) -> None:
    assert BY_DIALECT[dialect].promql('`rl.step.mfu`{`run.id`="a"} > 0') == written


def test_a_label_in_a_string_stays_a_string_and_a_series_alone_needs_no_labels() -> None:
    query = 'sum by (`hw.id`) (label_replace(`hw.power`, "`hw.id`", "$1", "UUID", "(.+)"))'
    assert BY_DIALECT["utf8"].promql(query) == (
        'sum by ("hw.id") (label_replace({"hw.power_watts"}, "hw.id", "$1", "UUID", "(.+)"))'
    )
    assert BY_DIALECT["scrape"].promql(query) == (
        'sum by (hw_id) (label_replace(hw_power_watts, "hw_id", "$1", "UUID", "(.+)"))'
    )


def test_legends_and_annotations_print_labels() -> None:
    assert BY_DIALECT["scrape"].legend("{{`rl.term`}} {{le}}") == "{{akka_optimize_training_rl_term}} {{le}}"
    assert BY_DIALECT["scrape"].annotation("Run {{`run.id`}}") == "Run {{ $labels.akka_optimize_training_run_id }}"
    assert BY_DIALECT["utf8"].annotation("{{`hw.id`}} {{ $value }}") == '{{ index $labels "hw.id" }} {{ $value }}'


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("metric", REGISTRY.metrics, ids=lambda metric: metric.name)
def test_every_series_can_be_written_by_its_short_name(metric: Metric, dialect: Dialect) -> None:
    parts = ("_bucket", "_sum", "_count") if metric.kind == "histogram" else ("",)
    written = [BY_DIALECT[dialect].promql(f"`{short(metric.name)}{part}`").strip('{"}') for part in parts]
    assert written == [*all_series(metric, dialect)]
    assert BY_DIALECT[dialect].metrics(f"`{short(metric.name)}{parts[0]}`") == [metric]


def test_no_metric_is_called_as_an_attribute() -> None:
    """Such a name would be taken for the attribute."""
    assert not {metric.name for metric in REGISTRY.metrics} & REGISTRY.attributes.keys()


@given(st.text(alphabet=st.characters(exclude_characters="`")), st.sampled_from(sorted(REGISTRY.attributes)))
def test_what_is_not_in_backquotes_stays(text: str, attribute: str) -> None:
    notation = BY_DIALECT["scrape"]
    assert notation.promql(text) == notation.legend(text) == notation.annotation(text) == text
    assert notation.promql(f"{text} `{attribute}` {text}") == f"{text} {label_name(attribute, 'scrape')} {text}"


@pytest.mark.parametrize("unknown", ["rl.step.rewards", "rl.step.reward_sum_sum", "hw", "rl.step.count_total"])
def test_an_unknown_name_is_named(unknown: str) -> None:
    with pytest.raises(UnknownName, match=unknown):
        BY_DIALECT["scrape"].metric(unknown)
    with pytest.raises(UnknownName, match=unknown):
        BY_DIALECT["scrape"].label(unknown)


@pytest.mark.parametrize("metric", REGISTRY.metrics, ids=lambda metric: metric.name)
def test_grafana_knows_every_unit(metric: Metric) -> None:
    assert grafana_unit(metric)


def test_a_unit_that_grafana_does_not_know_is_named() -> None:
    with pytest.raises(ValueError, match="'mi/h'"):
        grafana_unit(REGISTRY.metrics[0].model_copy(update={"unit": "mi/h"}))


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("rows: [", "not YAML"),
        ("{}", "uid: Field required"),
        ("{uid: a, title: A, description: A., variables: [], leads_to: {}, rows: []}", "rows: Tuple should have"),
    ],
)
def test_a_file_of_another_form_is_one_line(tmp_path: Path, text: str, fault: str) -> None:
    path = tmp_path / "board.yaml"
    path.write_text(text)
    with pytest.raises(FormError, match=f"^board.yaml: {fault}[^\n]*$"):
        read(path, DashboardForm)


def test_a_query_of_what_the_registry_lost_stops_the_generator(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    board = tmp_path / "board.yaml"
    panel = "{title: A, queries: ['`rl.step.gone`']}"
    board.write_text(
        f"{{uid: a, title: A, description: A., variables: [], leads_to: {{}}, rows: [{{title: A, panels: [{panel}]}}]}}"
    )
    lost = {"deploy/board.json": lambda registry: deployment._write_dashboard(board, "scrape", registry)}
    monkeypatch.setattr(generate, "OUTPUTS", lost)
    assert generate.main(["--check"]) == 1
    assert capsys.readouterr().err == "board.yaml: rl.step.gone: the registry has no such metric or attribute\n"
