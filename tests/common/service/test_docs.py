"""What `docs/service.md` says: its code runs, and its table of phases is the one that holds."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from akka_otel_callbacks.common.service.phases import ENDS, JOB, NEXT, SETUP, STARTS
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.names import RunPhase

PAGE = (Path(__file__).parents[3] / "docs" / "service.md").read_text()
CODE = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_code_of_the_page_runs(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_SDK_DISABLED", "true")
    scope: dict[str, Any] = {}
    exec("from __future__ import annotations\n" + CODE[0], scope)
    assert scope["run"].phase == RunPhase.COMPLETED
    environment.delenv("OTEL_SDK_DISABLED")
    exec(CODE[1], scope)
    scope["test_a_run_is_counted"]()


def test_the_page_names_every_metric_of_a_service() -> None:
    for metric in names.SERVICE_METRICS:
        assert f"`{metric.name.removeprefix('akka.optimize.training.')}`" in PAGE, metric.name


def test_the_table_of_phases_is_the_one_that_holds() -> None:
    always = {RunPhase.CLEANING_UP, RunPhase.FAILED, RunPhase.CANCELLED}
    assert "`CLEANING_UP`, `FAILED` and `CANCELLED` may follow any phase that is not a last one" in PAGE
    for phase, following in NEXT.items():
        assert phase in ENDS or always - {phase} <= following
    assert NEXT[RunPhase.REGISTERING] - always == {RunPhase.COMPLETED}
    assert NEXT[RunPhase.PAUSED] - always == {*SETUP, RunPhase.SUBMITTING} == STARTS
    assert NEXT[RunPhase.PAUSING] - always == {*JOB, RunPhase.PAUSED, RunPhase.REGISTERING, RunPhase.COMPLETED}
    for place, phase in enumerate(SETUP):
        assert NEXT[phase] - always == {*SETUP[place + 1 :], *JOB}
    for phase in JOB:
        others = {*JOB} - {phase}
        after = {RunPhase.PAUSING, RunPhase.REGISTERING, RunPhase.COMPLETED, RunPhase.AWAITING_DEVICES}
        assert NEXT[phase] - always - {RunPhase.TRAINING} == (others | after) - {RunPhase.TRAINING}
    for row in re.findall(r"^\| .* \|$", PAGE, re.MULTILINE):
        for word in re.findall(r"`([A-Z][A-Z_]{4,})`", row):
            assert word in names.ATTR_RUN_PHASE.values or word in ("GRANTED", "QUEUED"), word
