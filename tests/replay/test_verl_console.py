"""verl's console log, among all that a terminal and other processes put around its lines."""

from __future__ import annotations

import io
import json
import math
import pprint
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.replay.log import Row
from akka_otel_callbacks.replay.verl_console import is_one, read

ACTOR = "(TaskRunner pid=4711) "
SPECIAL = {"train/lr(1e-3)": 0.01, "val-core/openai/gsm8k/reward/mean@1": 0.5, "perf/total_num_tokens": 12345}


def printed(step: int, values: dict[str, Any], form: Any = pprint.pformat) -> str:
    """As verl's `concat_dict_to_str`."""
    return " - ".join([f"step:{step}", *(f"{key}:{form(value)}" for key, value in values.items())])


def rounded(value: float) -> str:
    """Up to 0.4."""
    return f"{value:.3f}"


def log(folder: Path, text: str) -> list[Row]:
    file = folder / "console.log"
    file.write_text(text)
    return read([file]).rows


def only(folder: Path, text: str) -> Row:
    (row,) = log(folder, text)
    return row


ROW = {"actor/loss": 0.1, "actor/lr": 1e-06, "response_length/mean": 57.25, **SPECIAL}


@pytest.mark.parametrize("before", ["", ACTOR, "\x1b[36m(TaskRunner pid=4711)\x1b[0m ", "[36m(main_task pid=1)[0m "])
@pytest.mark.parametrize("behind", ["", " [repeated 2x across cluster]", "\r", " \x1b[0m"])
def test_what_stands_around_a_row(tmp_path: Path, before: str, behind: str) -> None:
    row = only(tmp_path, f"{before}some words\n{before}{printed(7, ROW)}{behind}\nTraining Progress: 10%\n")
    assert (row.number, row.values) == (7, ROW)


def test_a_row_behind_a_progress_bar(tmp_path: Path) -> None:
    bar = "Training Progress:   1%|▏| 1/100 [00:04<07:04,  4.29s/it]"
    assert only(tmp_path, f"{bar}\r{ACTOR}{printed(1, ROW)}\n").values == ROW
    assert [row.values for row in log(tmp_path, f"{bar}{printed(1, ROW)}\n{bar} {printed(2, ROW)}\n")] == [ROW, ROW]


def test_numbers_of_numpy_and_nan(tmp_path: Path) -> None:
    values = {"actor/loss": np.float64(0.5), "val/loss": math.nan, "num_turns/max": np.int32(2), "perf/mfu/actor": True}
    found = only(tmp_path, printed(1, values) + "\n").values
    assert "np.float64" in printed(1, values)
    assert (found["actor/loss"], found["num_turns/max"]) == (0.5, 2)
    assert math.isnan(found["val/loss"])
    assert "perf/mfu/actor" not in found


def test_a_rate_that_three_decimals_cannot_hold_is_absent(tmp_path: Path) -> None:
    values = {"actor/lr": 1e-6, "critic/lr": 0.0014, "train/lr(1e-3)": 0.01, "actor/pg_clipfrac": 0.0}
    assert only(tmp_path, printed(1, values, rounded) + "\n").values == {"train/lr(1e-3)": 0.01, "actor/pg_clipfrac": 0}
    assert only(tmp_path, printed(1, values) + "\n").values == values


def test_other_texts_are_no_rows(tmp_path: Path) -> None:
    text = (
        "step by step: 7 days * 2 = 84\nstep:3 of the recipe - add salt:2\nnext step:1 - done:5\nstep:x - actor/a:1\n"
    )
    assert log(tmp_path, text) == []


@pytest.mark.parametrize("is_whole", [True, False])
def test_the_last_number_of_a_line_that_was_cut_off_is_left_out(tmp_path: Path, is_whole: bool) -> None:
    text = printed(3, {"actor/loss": 0.5, "actor/grad_norm": 1.2345})
    found = only(tmp_path, text + "\n" if is_whole else text[:-2]).values
    assert found == ({"actor/loss": 0.5, "actor/grad_norm": 1.2345} if is_whole else {"actor/loss": 0.5})


def test_a_line_that_another_process_broke_has_what_is_sure(tmp_path: Path) -> None:
    text = printed(1, {"actor/loss": 0.5, "actor/grad_norm": 1.25, "actor/lr": 1e-6})
    at = text.index("1.25") + 2
    rows = log(tmp_path, f"{ACTOR}{text[:at]}(WorkerDict pid=5) loading\n{text[at:]}\n")
    assert [row.values for row in rows] == [{"actor/loss": 0.5}]


keys = st.from_regex(r"(actor|critic|perf|timing_s)/[a-z_]{1,20}(/mean)?", fullmatch=True)
rows = st.dictionaries(keys, st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=40)
settled = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


@settled
@given(values=rows, width=st.integers(60, 160), named=st.booleans(), noise=st.booleans(), at_blanks=st.booleans())
def test_a_row_that_a_terminal_wrapped(
    tmp_path: Path, values: dict[str, float], width: int, named: bool, noise: bool, at_blanks: bool
) -> None:
    """Nothing of it is wrong, and at most one number is missing, of which nobody can know whether it was whole."""
    text = printed(12, values)
    parts = (
        textwrap.wrap(text, width, break_on_hyphens=False)
        if at_blanks
        else [text[at : at + width] for at in range(0, len(text), width)]
    )
    between = ["(WorkerDict pid=9) step 3 - 5:2", "(WorkerDict pid=9) 12"] if noise and named else []
    lines = [line for part in parts for line in ((ACTOR if named else "") + part, *between)]
    rows = log(tmp_path, "\n".join([*lines, "Training Progress: 1%", ""]))
    found = {key: value for row in rows for key, value in row.values.items()}
    assert {row.number for row in rows} <= {12}
    assert found.items() <= values.items()
    assert len(found) >= len(values) - 1


@settled
@given(text=st.text() | st.lists(st.sampled_from([*"step:1 -/.e\n", "actor/", "step:2 - ", "kl:1"])).map("".join))
def test_any_text_gives_rows_or_none(tmp_path: Path, text: str) -> None:
    for row in log(tmp_path, text):
        assert all(isinstance(value, float) for value in row.values.values())
        assert f"step:{row.number}" in text or str(row.number) not in text


@pytest.mark.parametrize(
    ("before", "seconds"),
    [
        ("2026-03-01T10:00:00.250Z ", 1772359200.25),
        ("2026-03-01 10:00:00,250 ", 1772359200.25),
        ("[2026-03-01 11:00:00+01:00] ", 1772359200.0),
        (f"{ACTOR}2026-03-01T10:00:00Z ", 1772359200.0),
        ("2026-03-01T10:00:00.123456789Z stdout F "[:31], 1772359200.123456789),
    ],
)
def test_times_of_lines(tmp_path: Path, before: str, seconds: float) -> None:
    row = only(tmp_path, f"{before}{printed(1, ROW)}\n")
    assert row.values == ROW
    assert row.time_ns / 1e9 == pytest.approx(seconds, abs=1e-6)


@pytest.mark.parametrize("time", ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+05:00", "9999-12-31T23:59:59-05:00"])
def test_a_time_that_cannot_be_true_is_none(tmp_path: Path, time: str) -> None:
    row = only(tmp_path, f"{time} {printed(1, ROW)}\n")
    assert (row.values, row.time_ns) == (ROW, None)


def test_lines_that_a_container_runtime_wrapped_in_json(tmp_path: Path) -> None:
    line = {"log": f"{ACTOR}{printed(1, ROW)}\n", "stream": "stdout", "time": "2026-03-01T10:00:00.25Z"}
    row = only(tmp_path, json.dumps(line) + "\n")
    assert (row.values, row.time_ns) == (ROW, 1772359200_250000000)


def test_the_configuration_that_the_trainer_prints(tmp_path: Path) -> None:
    actor = {"actor": {"optim": {"lr": None}, "strategy": "fsdp"}, "model": {"path": "it's {here"}}
    config = {"trainer": {"total_epochs": 3}, "data": {}, "actor_rollout_ref": actor}
    pretty = [f"{ACTOR}{line}" for line in pprint.pformat(config, width=40).splitlines()]
    noise = "(WorkerDict pid=9) {'not': 'this'"
    text = "\n".join([noise, pretty[0], noise, *pretty[1:], ACTOR + printed(1, ROW), ""])
    assert len(pretty) > 3
    assert only(tmp_path, text).config == config
    assert only(tmp_path, text.replace(": 3}", ": 3, open(1)}")).config is None


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_configuration_that_ray_broke_where_it_flushed(tmp_path: Path, data: st.DataObject) -> None:
    """Ray ends a line where its flush fell between two writes of the printer: behind any word of the configuration."""
    layers = [{"_target_": "it's }", "layers": [1, (2, {"deep": {"er": None}})]}, {"again": {}}]
    config = {"actor_rollout_ref": {"actor": layers, "empty": {}}, "data": {"files": "a {b"}, "trainer": {"n": 3}}
    file = io.StringIO()
    writes: list[str] = []
    file.write = writes.append  # type: ignore[method-assign,assignment]
    pprint.pprint(config, stream=file, width=data.draw(st.integers(20, 120)))
    broken = "".join(data.draw(st.sampled_from(["", "\n"])) + write for write in writes).strip("\n")
    lost = f"{ACTOR}{{'data': {{}}, 'trainer': {{'lost': [\n"  # of a process that was ended while it printed
    text = lost + "".join(f"{ACTOR}{line}\n" for line in broken.splitlines())
    assert only(tmp_path, f"{text}{ACTOR}{printed(1, ROW)}\n").config == config


WARNINGS = [
    '/site-packages/verl/workers/engine/__init__.py:32: UserWarning: torchtitan is not there: Error("No module \'it")',
    '  warnings.warn(f"torchtitan engine is not available: {e!r}", stacklevel=1)',
    "WARNING 12-01 05:19:15 [config.py:71] {'not': 'this'",
    "Traceback (most recent call last):",
    '  File "main.py", line 180, in <module>',
    "    use_critic=need_critic(config),",
]


@given(data=st.data())
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_configuration_among_warnings_of_the_same_process(tmp_path: Path, data: st.DataObject) -> None:
    """Ray reads what a process prints and what it warns of from two files, in turns."""
    layers = [{"_target_": "it's }", "values": [1, -2.5, True, None, ("a long text with words that are " * 5)]}]
    config = {"actor_rollout_ref": {"actor": layers, "empty": {}}, "data": {"files": "a {b"}, "trainer": {"n": 3}}
    first, *rest = pprint.pformat(config, width=data.draw(st.integers(20, 120))).splitlines()
    lines = [first]
    for line in rest:
        lines += [*data.draw(st.lists(st.sampled_from(WARNINGS), max_size=2)), line]
    text = "".join(f"{ACTOR}{line}\n" for line in lines)
    assert only(tmp_path, f"{text}{ACTOR}{printed(1, ROW)}\n").config == config


@pytest.mark.parametrize(
    ("text", "recognised"),
    [
        ("(TaskRunner pid=1) loading the model\n", True),
        (printed(1, ROW), True),
        ("step:1 - done:5\nhello\n", False),
        ("", False),
    ],
)
def test_it_is_recognised(tmp_path: Path, text: str, recognised: bool) -> None:
    file = tmp_path / "console.log"
    file.write_text(text)
    assert is_one(file) is recognised
