"""What a page holds: every figure or the reason for its absence, and nothing that JSON has not."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import DISTRIBUTIONS, GAUGES, RLStep, SFTStep
from akka_otel_callbacks.report import report
from akka_otel_callbacks.report.absences import NOT_SAID, REASONS
from akka_otel_callbacks.report.course import Course
from akka_otel_callbacks.report.drawing import together
from akka_otel_callbacks.report.page import page
from akka_otel_callbacks.report.panels import RL, SFT
from tests.report.recordings import history, record, recording, rl_step, sft_step

NOT_DRAWN = {
    names.RL_STEP_NUMBER: "the x axis",
    names.SFT_STEP_NUMBER: "the x axis",
    names.JOB_EPOCH: "a step says as much",
    names.RL_STEP_ROLLOUTS: "it is the same in all steps",
    names.RL_STEP_TOKENS: "the throughput says it with the time",
    names.RL_STEP_REWARD_TERM_STD: "too many lines for what it says",
    names.RL_STEP_DURATION: "the phases add up to it",
    names.SFT_STEP_DURATION: "the phases add up to it",
    names.RL_ROLLOUT_COMPLETION_LENGTH: "the shortest, the longest and the mean say it by step",
}


def of(*folders: Path) -> dict[str, Any]:
    made = page([*map(history, folders)], time.time_ns())
    return json.loads(json.dumps(made, allow_nan=False))


def drawn(made: dict[str, Any], panel: str) -> list[dict[str, Any]]:
    (found,) = (one for one in made["panels"] if one["name"] == panel)
    return [each for chart in found["charts"] for each in chart["drawn"]]


@pytest.mark.parametrize(("panels", "kind"), [(RL, RLStep), (SFT, SFTStep)])
def test_every_figure_of_a_step_is_drawn_somewhere(panels: Any, kind: Any) -> None:
    shown = {metric for panel in panels for metric in panel.metrics}
    reported = {source.metric for source in (*GAUGES[kind], *DISTRIBUTIONS[kind])}
    assert {metric.name for metric in reported - shown - NOT_DRAWN.keys()} == set()


@pytest.mark.parametrize("make", [rl_step, sft_step])
def test_what_is_not_drawn_is_absent_with_a_reason(tmp_path: Path, make: Any) -> None:
    made = of(record(tmp_path, 20, make))
    absent = {figure["name"] for one in made["absent"] for figure in one["figures"]}
    assert "step.memory" in absent
    assert not {"rl.step.reward", "sft.step.loss"} & absent
    assert all(one["charts"] or one["why"] for one in made["panels"])


def test_a_figure_that_some_runs_lack_by_their_nature_has_a_reason_of_its_own() -> None:
    always = {"reward", "completion", "loss", "grad_norm", "learning_rate", "throughput", "timing", "tokens"}
    for panel in (*RL, *SFT):
        for metric in panel.metrics:
            if metric not in REASONS:
                assert any(word in metric.name for word in always), f"{metric.name} would only say: {NOT_SAID}"


def test_of_a_long_run_the_spikes_stay(tmp_path: Path) -> None:
    spikes = {1234: 50.0, 4321: -7.0}
    made = of(record(tmp_path, 5000, figures=lambda n: {"grad_norm": spikes.get(n, 1.0), "kl": 0.5}, every=100))
    (norm,) = (one for one in drawn(made, "gradient") if one["rows"][0]["name"] == "gradient norm")
    assert (min(norm["low"]), max(norm["high"])) == (-7.0, 50.0)
    at = norm["high"].index(50.0)
    width = norm["x"][1] - norm["x"][0]
    assert abs(norm["x"][at] - 1234) <= width
    assert norm["rows"][0]["y"][at] == pytest.approx((50 + (width - 1)) / width, rel=0.1), "a line is the mean"
    assert len(norm["x"]) < 1000


def test_no_line_leads_over_the_steps_that_lack_a_figure(tmp_path: Path) -> None:
    folder = record(
        tmp_path, 9, figures=lambda n: {"kl": None if n in (4, 5) else n / 10, "entropy": n if n % 4 == 1 else None}
    )
    often, seldom = (
        next(one for one in drawn(of(folder), "entropy") if one["rows"][0]["name"] == name)
        for name in ("KL", "entropy")
    )
    assert often["x"] == [*range(1, 10)]
    assert often["rows"][0]["y"] == [0.1, 0.2, 0.3, None, None, 0.6, 0.7, 0.8, 0.9]
    assert (seldom["x"], seldom["rows"][0]["y"]) == ([1, 5, 9], [1, 5, 9]), "as the log of every fourth step"


def test_phases_are_added_within_one_step_only(tmp_path: Path) -> None:
    def timing(number: int) -> dict[str, object]:
        return {"timing_s": {"gen": 2.0, "step": 3.5, "update_actor": 1.0} if number % 2 else {"gen": 4.0, "step": 4.0}}

    (stack,) = (one for one in drawn(of(record(tmp_path, 6, figures=timing)), "phases") if one["form"] == "stack")
    assert stack["x"] == [1, 2, 3, 4, 5, 6]
    rows = {row["name"]: row["y"] for row in stack["rows"]}
    assert rows == {"gen": [2, 4] * 3, "update_actor": [1, None] * 3, "other": [0.5, 0] * 3}


def test_a_nan_is_marked_at_the_step_that_lacks_the_figure(tmp_path: Path) -> None:
    made = of(record(tmp_path, 20, figures=lambda n: {"loss": float("nan")} if n == 13 else {}))
    (chart,) = (chart for panel in made["panels"] if panel["name"] == "loss" for chart in panel["charts"])
    assert chart["marks"] == [{"run": 0, "x": 13, "text": "1 × rl.step.loss not finite", "bad": True}]


@pytest.mark.parametrize(("since", "hint"), [(13, "from 3: +0, none since step 12"), (20, "from 3: +0")])
def test_a_loss_that_is_no_number_any_more_is_not_told_as_the_latest(tmp_path: Path, since: int, hint: str) -> None:
    loss = {True: 3.0, False: float("nan")}
    made = of(record(tmp_path, 20, sft_step, lambda n: {"loss": loss[n < since]}))
    (fact,) = (fact for fact in made["runs"][0]["facts"] if fact["label"] == "Loss")
    assert (fact["value"], fact["hint"]) == ("3", hint)


def test_an_evaluation_that_is_no_number_is_told_by_the_step_that_told_of_it(tmp_path: Path) -> None:
    with recording(tmp_path, SFTStep) as run:
        for number in range(1, 21):
            run.step(sft_step(number, 20))
            if number in (7, 17):
                run.step(SFTStep(eval_loss=float("nan")), seconds=0.3)
            if number % 10 == 0:
                run.export()
    made = of(tmp_path)
    (verdict,) = made["verdicts"]
    assert verdict["found"] == ["sft.eval.loss was NaN or infinite 2 ×, first by step 10"]
    marks = next(panel["charts"][0]["marks"] for panel in made["panels"] if panel["name"] == "loss")
    assert [(mark["x"], mark["text"]) for mark in marks] == [
        (10, "1 × sft.eval.loss not finite by then"),
        (20, "1 × sft.eval.loss not finite by then"),
    ]


def test_marks_of_every_step_are_told_together(tmp_path: Path) -> None:
    """As of weights that are NaN, in a run that exports each of its steps."""
    made = of(record(tmp_path, 500, figures=lambda n: {"loss": float("nan")} if n > 100 else {}, every=1))
    marks = next(panel["charts"][0]["marks"] for panel in made["panels"] if panel["name"] == "loss")
    assert [mark["x"] for mark in marks] == [*range(101, 501, 10)]
    assert marks[0]["text"] == "1 × rl.step.loss not finite, and 9 more marks until step 110"
    assert all(mark["bad"] for mark in marks)


def test_a_reward_that_is_no_number_is_marked_at_the_step_that_told_of_it(tmp_path: Path) -> None:
    def infinite_at_13(number: int) -> dict[str, object]:
        return {
            "rollout_reward": {
                "total": [float("inf") if number == 13 else 0.5],
                "odd": [float("inf") if number == 13 else 0.5],
            }
        }

    made = of(record(tmp_path, 20, figures=infinite_at_13, every=5))
    marks = next(panel["charts"][0]["marks"] for panel in made["panels"] if panel["name"] == "loss")
    assert {(mark["x"], mark["text"]) for mark in marks} == {
        (15, "1 × rl.rollout.reward total not finite by then"),
        (15, "1 × rl.rollout.reward odd not finite by then"),
    }


def test_a_time_that_nobody_told_is_not_1970(tmp_path: Path) -> None:
    points = {"gauge": {"dataPoints": [{"asDouble": 0.5}]}}
    metrics = [{"name": names.RL_STEP_REWARD.name, **points}]
    line = {"resourceMetrics": [{"resource": {}, "scopeMetrics": [{"metrics": metrics}]}]}
    (tmp_path / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    made = of(tmp_path)
    state = made["runs"][0]["facts"][0]
    assert (state["value"], state["hint"]) == ("no end recorded", "no figure says when it was taken")
    assert "began" not in {row["label"] for row in made["who"]}


def test_what_differs_between_runs_is_marked(tmp_path: Path) -> None:
    rate = names.ATTR_RUN_LEARNING_RATE.name
    one, other = (record(tmp_path / name, 5, **{rate: value}) for name, value in (("a", "1e-6"), ("b", "2e-6")))
    rows = {row["label"]: row for row in of(one, other)["who"]}
    assert rows["run.learning_rate"] == {"label": "run.learning_rate", "values": ["1e-6", "2e-6"], "differs": True}
    assert rows["service.name"]["differs"] is False


def test_runs_of_both_kinds_have_the_panels_of_both(tmp_path: Path) -> None:
    made = of(record(tmp_path / "a", 5), record(tmp_path / "b", 5, sft_step))
    titles = [panel["name"] for panel in made["panels"]]
    assert len({*titles}) == len(titles)
    assert {"reward", "accuracy"} <= {*titles}


def test_the_report_of_a_notebook(tmp_path: Path) -> None:
    made = report(record(tmp_path / "runs" / "a", 3))
    assert made.save(tmp_path / "page.html").read_text() == made.html
    shown = made._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert "<script" not in shown, "what is quoted is quoted as a whole"
    assert report(tmp_path / "runs").runs[0].name == "run-1"
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="holds no telemetry of a run"):
        report(tmp_path / "empty")
    with pytest.raises(ValueError, match="name at least one path"):
        report()


@pytest.mark.parametrize("gpus", [16, 17, 200])
def test_of_many_gpus_there_is_the_room_that_they_fill_and_those_that_stand_out(tmp_path: Path, gpus: int) -> None:
    """The first ones are the coolest. Processes export at times of their own."""
    with recording(tmp_path) as made:
        for number in range(1, 11):
            made.step(rl_step(number, 10))
            hot = [(40.0 + gpu / 10 + number, {"hw.id": f"GPU-{gpu:08d}"}) for gpu in range(gpus)]
            made.observed = {names.HW_TEMPERATURE: hot}
            made.export()
    panel = next(panel for panel in of(tmp_path)["panels"] if panel["name"] == "gpu")
    (chart,) = panel["charts"]
    lines = [one for one in chart["drawn"] if one["form"] == "line"]
    bands = [one for one in chart["drawn"] if one["form"] == "band"]
    if gpus == 16:
        assert (len(lines), bands) == (16, [])
        return
    shown = {int(one["rows"][0]["name"][-6:]) for one in lines}
    assert shown == {0, 1, 2, 3, *range(gpus - 4, gpus)}
    (band,) = bands
    assert band["rows"][0]["name"] == f"lowest to highest of {gpus}"
    assert (band["rows"][0]["y"][0], band["rows"][1]["y"][-1]) == (41, pytest.approx(50 + (gpus - 1) / 10))


def test_many_runs_with_very_many_terms_make_no_large_page(tmp_path: Path) -> None:
    def terms(number: int) -> dict[str, object]:
        return {"reward_term": {f"term {at}": number / (at + 1) for at in range(199)}}

    run = history(record(tmp_path, 60, figures=terms, every=20))
    data = json.dumps(page([run] * 20, time.time_ns()), separators=(",", ":"))
    assert len(data) < 400_000


def test_a_run_that_only_evaluated_has_the_panels_of_its_kind(tmp_path: Path) -> None:
    with recording(tmp_path, SFTStep) as made:
        made.step(SFTStep(eval_loss=2.5))
        made.export()
    panels = {panel["name"]: panel for panel in of(tmp_path)["panels"]}
    assert "accuracy" in panels
    assert panels["results"]["charts"][0]["drawn"][0]["rows"][0]["y"] == [2.5]


class Counted(float):
    """A number that counts how often one of its kind is compared."""

    times = 0

    def __lt__(self, other: float) -> bool:
        Counted.times += 1
        return float(self) < other

    def __gt__(self, other: float) -> bool:
        Counted.times += 1
        return float(self) > other


def test_what_a_page_costs_grows_with_the_steps_and_not_with_their_square() -> None:
    course = Course({}, [*map(Counted, range(1000))], [1.0] * 1000)
    assert together([course], course.x) == (course.x, [course.y])
    assert 1000 < Counted.times < 50 * 1000
