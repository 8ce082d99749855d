"""The end of a run whose trainer is an actor of its own, on a real Ray."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.verl.ray_driver import drive

pytest.importorskip("ray", reason="comes with verl")

ENDS = {
    "nowhere": "NoneType: None",
    "begin": "InjectedError: ",
    "trainer": "InjectedError: ",
    "rollouter": "InjectedError: ",
    "death": "ActorDiedError: ",
}
"""How the trainer is to end, by where the training fails. There is no message, which may quote the data."""


def test_each_trainer_is_told_its_end_once_and_of_which_class(tmp_path: Path) -> None:
    written = tmp_path / "ended"
    done = drive("tests.verl.remote_trainer_job", str(written), *ENDS)
    output = done.stdout + done.stderr
    assert done.returncode == 0, output
    assert "telemetry failed" not in output
    assert written.read_text().splitlines() == [*ENDS.values()], output
    raised = [line.split()[0] for line in done.stdout.splitlines() if " raised " in line]
    assert raised == [where for where in ENDS if where != "nowhere"], "an error is the user's as ever"
