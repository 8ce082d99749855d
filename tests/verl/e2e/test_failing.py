"""A trainer and a rollout on devices of their own, one of which fails: what is left of the job."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("verl_cpu", reason="it needs the environment of constraints/verl.txt with examples/verl_cpu")

from akka_otel_callbacks.common.vocabulary import names
from tests.support.traces import named
from tests.verl.e2e import failing
from tests.verl.e2e.harness import Case, Run, trained

STEPS = {"trainer": failing.UPDATES // 2, "rollouter": 0}
"""Those that verl has logged by then, of two updates each."""
USUAL = "trainer"


@pytest.fixture(scope="module", params=STEPS)
def run(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    if request.param != USUAL and os.environ.get("VERL_E2E") != "all":
        pytest.skip("VERL_E2E=all has the other actor fail, too")
    case = Case("fully-async", environ={failing.FAILING: request.param}, external=failing.__name__)
    with trained(case, tmp_path_factory.mktemp("run")) as run:
        yield run


def test_it_fails_with_its_own_exception(run: Run) -> None:
    assert run.status == 1
    assert "InjectedError" in run.output
    assert "telemetry failed" not in run.output


def test_the_jobs_span_names_the_class_of_what_ended_it(run: Run) -> None:
    (job,) = named(run.sink.spans(), names.SPAN_JOB.name)
    assert job.status == 2
    assert job.attributes == {names.ATTR_ERROR_TYPE.name: failing.InjectedError.__name__}


def test_what_was_logged_until_then_has_arrived(run: Run) -> None:
    assert len(run.steps) == STEPS[run.case.environ[failing.FAILING]]
    if run.steps:
        assert run.value(names.RL_STEP_COUNT) == len(run.steps)
        assert run.value(names.RL_STEP_REWARD) == pytest.approx(run.steps[-1]["critic/score/mean"], rel=1e-6)
