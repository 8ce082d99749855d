"""Rules and a judge in real trainings: what is counted is what the judge's server was asked and has answered."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.graders.failure import CAUSES
from akka_otel_callbacks.common.vocabulary import names
from tests.support.judge_server import JudgeServer, judge_server
from tests.verl.e2e.harness import Case, Run, trained

OWN, RULE, JUDGE = "rule:graded_reward.py", "rule:digits.py", "model:judge-4b"
"""The whole function; what it is made of. `graded_reward` has the latter two, and reads the judge's address."""
SLOW_S = 0.02
TERM = names.ATTR_RL_TERM
CASES = {
    "v1": ("grpo", "asynchronous", ("trainer.test_freq=2",)),
    "v0": ("grpo-v0", "plain", ()),
    "remote": ("grpo", "plain", ("reward.reward_manager.name=remote",)),
    "early": ("separate-async", "asynchronous", ()),
    "fully-async": ("fully-async", "asynchronous", ()),
    "one-step-off": ("one-step-off", "plain", ()),
}
USUAL = {"v1", "v0"}


def case(recipe: str, function: str, extra: tuple[str, ...], server: JudgeServer) -> Case:
    path = Path(__file__).with_name("graded_reward.py")
    settings = f"reward.custom_reward_function.path={path}", f"reward.custom_reward_function.name={function}"
    return Case(recipe, extra=(*settings, *extra), environ={"JUDGE_URL": server.url})


@pytest.fixture(scope="module", params=CASES)
def judged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Run, JudgeServer]]:
    if request.param not in USUAL and os.environ.get("VERL_E2E") != "all":
        pytest.skip("VERL_E2E=all runs the other trainers, too")
    folder = tmp_path_factory.mktemp("run")
    with judge_server() as server, trained(case(*CASES[request.param], server), folder) as run:
        yield run, server


def test_every_call_of_a_steps_rollouts_is_counted_and_no_other(judged: tuple[Run, JudgeServer]) -> None:
    run, server = judged
    assert run.status == 0, run.output[-3000:]
    assert "telemetry failed" not in run.output
    reported = run.by(names.RL_ROLLOUT_REWARD, TERM)[names.RlTerm.TOTAL].histogram
    assert reported is not None
    durations = run.by(names.RL_GRADER_DURATION, TERM)
    assert durations.keys() == {OWN, RULE, JUDGE}
    assert {point.histogram.count for point in durations.values()} == {reported.count}
    assert durations[RULE].histogram.min >= SLOW_S
    assert durations[OWN].histogram.sum >= durations[RULE].histogram.sum + durations[JUDGE].histogram.sum
    assert len(server.asked) >= reported.count


def test_tokens_and_failures_are_those_of_the_texts_that_were_trained_on(judged: tuple[Run, JudgeServer]) -> None:
    run, server = judged
    last = run.steps[-1]["training/global_step"]  # fully_async dumps one more step, which it never logs
    texts = [rollout["output"] for step, dumped in run.rollouts.items() if step <= last for rollout in dumped]
    if not texts:
        pytest.skip("this trainer does not dump its rollouts")
    tokens: Counter[str] = Counter()
    answers = {asked.text: asked for asked in server.asked}
    for text in texts:
        tokens["input"] += answers[f"Rate this. {text}"].input_tokens
        tokens["output"] += answers[f"Rate this. {text}"].output_tokens
    assert counted(run, names.RL_GRADER_TOKENS) == {(JUDGE, kind): count for kind, count in tokens.items()}
    failed = sum(len(text) % 3 == 0 for text in texts)
    from_zero = dict.fromkeys(((term, cause) for term in (RULE, JUDGE) for cause in CAUSES), 0)
    assert counted(run, names.RL_GRADER_FAILURES) == {**from_zero, (RULE, "ungradable"): failed}


def test_what_travels_with_a_rollout_is_no_term_and_in_no_log(judged: tuple[Run, JudgeServer]) -> None:
    run, _ = judged
    assert set(run.by(names.RL_STEP_REWARD_TERM, TERM)) == {RULE, JUDGE, names.RlTerm.TOTAL}
    assert [key for row in run.steps for key in row if "akka_otel" in key or "graded" in key] == []
    assert "sk-of-the-judge" not in run.output


@pytest.mark.parametrize("recipe", ["grpo", "grpo-v0"])
def test_a_judge_that_refuses_the_credentials_ends_the_job(recipe: str, tmp_path: Path) -> None:
    with judge_server("401") as server, trained(case(recipe, "alone", (), server), tmp_path) as run:
        assert run.status != 0
    assert f"judge-4b at {server.url} refuses the job's credentials (HTTP 401)" in run.output
    assert "sk-of-the-judge" not in run.output
    assert counted(run, names.RL_GRADER_FAILURES) == {}


def counted(run: Run, metric: Any) -> dict[tuple[str, str], float]:
    found = {}
    for point in run.last if run.points else ():
        if point.name == metric.name:
            (other,) = [value for key, value in point.attributes.items() if key != TERM.name]
            found[point.attributes[TERM.name], other] = point.value
    return found
