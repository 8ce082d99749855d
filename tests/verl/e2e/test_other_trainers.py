"""The other trainers of verl, one short training each. They take minutes, so they run only where `VERL_E2E=all`."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.verl.e2e import seen
from tests.verl.e2e.harness import Case, Run, trained

pytestmark = pytest.mark.skipif(os.environ.get("VERL_E2E") != "all", reason="VERL_E2E=all runs the other trainers, too")

TRAINER = names.RlRole.TRAINER


class Expected(NamedTuple):
    roles: frozenset[str]
    idle: frozenset[str] = frozenset()
    extra: tuple[str, ...] = ()
    has_rate: bool = True


TWO_UPDATES = (
    "trainer.v1.separate_async.parameter_sync_step=2",
    "actor_rollout_ref.actor.ppo_mini_batch_size=2",
)
CASES = {
    "ppo": Expected(frozenset({"actor_rollout_ref+critic"}), extra=("algorithm.use_kl_in_reward=True",)),
    "colocate-async": Expected(frozenset({"actor_rollout"})),
    "separate-async": Expected(frozenset({"actor", "rollout"}), frozenset({TRAINER}), TWO_UPDATES, has_rate=False),
    "one-step-off": Expected(frozenset({"actor", "rollout"}), frozenset({TRAINER})),
}


@pytest.fixture(scope="module", params=CASES)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    case = Case(request.param, extra=CASES[request.param].extra, external="tests.verl.e2e.seen")
    with trained(case, tmp_path_factory.mktemp("run")) as run:
        yield run


def test_it_trains_and_nothing_of_the_telemetry_fails(run: Run) -> None:
    assert run.status == 0, run.output[-3000:]
    assert "telemetry failed" not in run.output
    assert run.value(names.RL_STEP_COUNT) == len(run.steps) == 3


def test_the_last_step_is_what_verl_logged(run: Run) -> None:
    last = run.steps[-1]
    assert run.value(names.RL_STEP_REWARD) == pytest.approx(last["critic/score/mean"], rel=1e-6)
    assert run.value(names.RL_STEP_GRAD_NORM) == pytest.approx(last["actor/grad_norm"], rel=1e-6)
    assert run.value(names.RL_STEP_ROLLOUTS) == 16


def test_a_step_of_several_rates_has_none(run: Run) -> None:
    rate = run.value(names.RL_STEP_LEARNING_RATE)
    assert rate == (pytest.approx(run.steps[-2]["actor/lr"]) if CASES[run.case.recipe].has_rate else None)


def test_entropy_is_that_of_all_the_steps_tokens(run: Run) -> None:
    """verl weighs the updates of a step by their samples; ours are weighed by their tokens. A recipe that takes the
    servers' probabilities for the old ones has none."""
    logged = run.steps[-1].get("actor/entropy")
    expected = None if logged is None else pytest.approx(logged, rel=0.01)
    assert run.value(names.RL_STEP_ENTROPY) == expected


def test_a_penalty_on_the_rewards_has_a_divergence(run: Run) -> None:
    if "actor/reward_kl_penalty" in run.steps[-1]:  # a mean over completions, whatever their lengths
        assert run.value(names.RL_STEP_KL) == pytest.approx(seen.penalized(run.directory), rel=1e-4, abs=1e-7)
    else:
        assert run.value(names.RL_STEP_KL) is None


def test_every_worker_says_where_it_runs(run: Run) -> None:
    assert {role for role, _ in run.placements()} == CASES[run.case.recipe].roles


def test_only_what_is_apart_idles(run: Run) -> None:
    idle = run.by(names.RL_IDLE, names.ATTR_RL_ROLE)
    assert idle.keys() == CASES[run.case.recipe].idle
    assert all(0 <= point.value <= 1 for point in idle.values())
