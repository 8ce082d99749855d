"""The files of transformers, of verl's own logger and of TensorBoard, whole or not."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils.tensorboard import SummaryWriter

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.replay import tensorboard, trainer_state, verl_file
from akka_otel_callbacks.replay.log import Row, Unreadable

HISTORY = [{"loss": number / 4, "epoch": number / 10, "step": number} for number in range(1, 9)]
STATE = {"epoch": 0.8, "global_step": 8, "log_history": HISTORY, "max_steps": 20, "num_train_epochs": 3}
settled = settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60)


def written(folder: Path, content: Any, name: str = "trainer_state.json") -> Path:
    file = folder / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content if isinstance(content, str) else json.dumps(content, indent=2, sort_keys=True))
    return file


def values_of(rows: list[Row]) -> list[tuple[int, dict[str, Any]]]:
    return [(row.number, row.values) for row in rows]


def expected(history: list[dict[str, Any]]) -> list[tuple[int, dict[str, Any]]]:
    return [(row["step"], {key: value for key, value in row.items() if key != "step"}) for row in history]


# -- transformers


def test_a_trainer_state(tmp_path: Path) -> None:
    file = written(tmp_path, STATE)
    log = trainer_state.read([file])
    assert trainer_state.is_one(file)
    assert values_of(log.rows) == expected(HISTORY)
    assert (log.last, log.planned, log.engine) == (8, 20, names.RunEngine.TRL)


def test_a_history_alone(tmp_path: Path) -> None:
    file = written(tmp_path, HISTORY)
    assert trainer_state.is_one(file)
    assert values_of(trainer_state.read([file]).rows) == expected(HISTORY)


def test_of_the_checkpoints_of_a_run_the_latest_has_it_all(tmp_path: Path) -> None:
    early = written(
        tmp_path, {**STATE, "global_step": 4, "log_history": HISTORY[:4]}, "checkpoint-4/trainer_state.json"
    )
    late = written(tmp_path, STATE, "checkpoint-8/trainer_state.json")
    assert values_of(trainer_state.read([late, early]).rows) == expected(HISTORY)


def test_checkpoints_of_two_runs_are_refused(tmp_path: Path) -> None:
    other = written(tmp_path, {**STATE, "log_history": [{"loss": 9.0, "step": 1}]}, "other.json")
    with pytest.raises(Unreadable, match="different runs"):
        trainer_state.read([written(tmp_path, STATE), other])


@pytest.mark.parametrize("sort_keys", [True, False])
def test_a_state_that_was_cut_off_has_its_whole_rows(tmp_path: Path, sort_keys: bool) -> None:
    text = json.dumps(STATE, indent=2, sort_keys=sort_keys)
    at = text.index('"loss": 1.25')
    log = trainer_state.read([written(tmp_path, text[: at + 10])])
    assert values_of(log.rows) == expected(HISTORY[:4])
    assert any("cut off" in note for note in log.notes)
    assert log.last == 8


def test_values_that_were_kept_as_text(tmp_path: Path) -> None:
    history = [{"loss": "np.float64(0.5)", "grad_norm": "tensor(1.5)", "learning_rate": "1e-06", "step": 1}]
    ((_, values),) = values_of(trainer_state.read([written(tmp_path, {**STATE, "log_history": history})]).rows)
    assert values == {"loss": 0.5, "grad_norm": 1.5, "learning_rate": 1e-6}


def test_data_without_a_length_count_no_epochs(tmp_path: Path) -> None:
    log = trainer_state.read([written(tmp_path, {**STATE, "num_train_epochs": 9223372036854775807})])
    assert all("epoch" not in row.values for row in log.rows)


rows = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5) | st.just("step"), inner, max_size=4)
    ),
    max_leaves=10,
)


@settled
@given(history=st.lists(rows, max_size=6), cut=st.integers(0, 400))
def test_any_history_is_rows_or_none(tmp_path: Path, history: list[Any], cut: int) -> None:
    text = json.dumps({"log_history": history, "global_step": 5})
    for content in (text, text[:cut]):
        for row in trainer_state.read([written(tmp_path, content)]).rows:
            assert isinstance(row.number, int)


# -- verl's file


def test_verls_file(tmp_path: Path) -> None:
    lines = [{"step": 0, "data": {"val-core/a/reward/mean@1": 0.5}}, {"step": 1, "data": {"train/loss": None}}]
    file = written(tmp_path, "\n".join([*map(json.dumps, lines), '{"step": 2, "da']), "run.jsonl")
    log = verl_file.read([file])
    assert verl_file.is_one(file)
    assert [row.number for row in log.rows] == [0, 1]
    assert math.isnan(log.rows[1].values["train/loss"])
    assert log.notes == ["Lines that are no rows, such as one that a killed run left half written: 1."]


@settled
@given(st.lists(st.text() | rows.map(json.dumps), max_size=5))
def test_any_lines_are_rows_or_none(tmp_path: Path, lines: list[str]) -> None:
    for row in verl_file.read([written(tmp_path, "\n".join(lines), "run.jsonl")]).rows:
        assert isinstance(row.number, int)


# -- TensorBoard


def events(folder: Path, calls: list[tuple[dict[str, float], int, float]]) -> Path:
    """A file with what each call of a logger writes at its step and time."""
    writer = SummaryWriter(str(folder))
    for values, step, time in calls:
        for tag, value in values.items():
            writer.add_scalar(tag, value, step, walltime=time)
    writer.close()
    (file,) = folder.iterdir()
    return file


def test_event_files_of_trl(tmp_path: Path) -> None:
    calls = [
        ({"train/loss": 0.5, "train/rewards/f/mean": 1.0, "train/epoch": 0.5}, 1, 100.5),
        ({"eval/one_loss": 2.0, "eval/one_runtime": 0.25, "train/epoch": 0.5}, 1, 101.0),
        ({"eval/two_loss": 3.0, "train/epoch": 0.5}, 1, 101.25),
        ({"train/loss": 0.25, "train/epoch": 1.0}, 2, 102.0),
    ]
    file = events(tmp_path, calls)
    log = tensorboard.read([file])
    assert tensorboard.is_one(file)
    assert log.engine == names.RunEngine.TRL
    assert [(row.number, row.time_ns, row.values) for row in log.rows] == [
        (1, 100_500_000_000, {"loss": 0.5, "rewards/f/mean": 1.0, "epoch": 0.5}),
        (1, 101_000_000_000, {"eval_one_loss": 2.0, "eval_one_runtime": 0.25, "epoch": 0.5}),
        (1, 101_250_000_000, {"eval_two_loss": 3.0, "epoch": 0.5}),
        (2, 102_000_000_000, {"loss": 0.25, "epoch": 1.0}),
    ]


def test_event_files_of_verl_in_the_order_of_their_times(tmp_path: Path) -> None:
    late = events(tmp_path / "a", [({"actor/loss": 0.5, "training/global_step": 2.0}, 2, 20.0)])
    early = events(tmp_path / "b", [({"actor/loss": 1.0, "training/global_step": 1.0}, 1, 10.0)])
    log = tensorboard.read([late, early])
    assert log.engine == names.RunEngine.VERL
    assert [(row.number, row.part, row.values["actor/loss"]) for row in log.rows] == [(1, 0, 1.0), (2, 1, 0.5)]


def test_a_validation_of_verl_has_a_row_and_a_time_of_its_own(tmp_path: Path) -> None:
    calls = [({"train/loss": 0.5, "train/lr": 0.25}, 2, 10.0), ({"val/loss": 1.0}, 2, 15.0)]
    log = tensorboard.read([events(tmp_path, calls)])
    assert [(row.values, row.time_ns) for row in log.rows] == [
        ({"train/loss": 0.5, "train/lr": 0.25}, 10_000_000_000),
        ({"val/loss": 1.0}, 15_000_000_000),
    ]


def test_an_event_file_that_was_cut_off(tmp_path: Path) -> None:
    file = events(tmp_path, [({"train/loss": float(step), "train/epoch": 1.0}, step, 10.0) for step in range(1, 50)])
    file.write_bytes(file.read_bytes()[:-200])
    found = values_of(tensorboard.read([file]).rows)
    assert 30 < len(found) < 49
    assert found[:-1] == [(step, {"loss": float(step), "epoch": 1.0}) for step in range(1, len(found))]


def test_without_the_reader_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = events(tmp_path, [({"train/loss": 1.0}, 1, 10.0)])
    monkeypatch.setitem(__import__("sys").modules, "tensorboard.backend.event_processing.event_file_loader", None)
    with pytest.raises(Unreadable, match=r"akka-otel-callbacks\[tensorboard\]"):
        tensorboard.read([file])
