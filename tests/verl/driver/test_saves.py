"""verl's own checkpoints as stages: of trainers that save in its ways, with a real `Tracking` and a real receiver."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

from verl.utils.checkpoint import checkpoint_handler

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.run import current
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl.attempts import TRACKER
from akka_otel_callbacks.verl.driver.saves import artifact_kind
from tests.support.otlp_sink import OtlpSink, wait_until
from tests.verl.driver.test_tracking import make
from tests.verl.driver.test_tracking import sink as sink  # the fixture
from tests.verl.test_settings import RL, SFT, changed

DURATION = names.CHECKPOINT_OPERATION_DURATION
KIND, OUTCOME = names.ATTR_CHECKPOINT_ARTIFACT_KIND.name, names.ATTR_CHECKPOINT_OUTCOME.name
STAGE = names.SPAN_CHECKPOINT_OPERATION.of("stage")
CONTENTS, ASYNCHRONOUS = "save_contents", "async_save"
ACTOR = "actor_rollout_ref.actor.checkpoint"


class Trainer:
    """Saves as verl's reinforcement trainers do, from a method that subclasses inherit."""

    def __init__(self, config: Any = RL, error: BaseException | None = None) -> None:
        self.config, self.error, self.global_steps = config, error, 0
        self.took: list[float] = []
        self.paused: list[dict[str, int]] = []
        self.tracking = make(config)

    def _save_checkpoint(self) -> None:
        begin = time.perf_counter()
        self.paused.append(pauses())
        time.sleep(0.01)
        if self.error is not None:
            raise self.error
        self.took.append(time.perf_counter() - begin)

    def save(self) -> None:
        self.global_steps += 1
        self._save_checkpoint()

    def end(self) -> None:
        self.tracking.finish()


class Recipe(Trainer):
    """A user's own, which extends verl's method."""

    def _save_checkpoint(self) -> None:
        super()._save_checkpoint()


def pauses() -> dict[str, int]:
    """What the run's telemetry says that it does in place of steps; nothing where no run is open."""
    run = current.current()
    points = run.pauses.points() if run is not None else ()
    return {attributes[names.ATTR_JOB_PAUSE_CAUSE.name]: value for value, attributes in points}


def stages(sink: OtlpSink) -> dict[tuple[Any, Any], Any]:
    """Histograms by kind and outcome, in the last export."""
    found = [point for point in sink.last_export() if point.name == DURATION.name]
    return {(point.attributes.get(KIND), point.attributes[OUTCOME]): point.histogram for point in found}


def spans(sink: OtlpSink) -> list[Any]:
    return [span for span in sink.spans() if span.name == STAGE]


@pytest.mark.parametrize("kind", [Trainer, Recipe])
def test_each_save_is_a_stage(kind: type[Trainer], sink: OtlpSink) -> None:
    trainer = kind()
    trainer.save()
    trainer.save()
    assert trainer.paused == [{"evaluating": 0, "checkpointing": 1}] * 2
    assert pauses() == {"evaluating": 0, "checkpointing": 0}
    trainer.end()
    (key, histogram), *others = stages(sink).items()
    assert (key, others) == (("full_state", "success"), [])
    assert histogram.count == 2
    assert sum(trainer.took) <= histogram.sum < sum(trainer.took) + 0.5
    (job,) = (span for span in sink.spans() if span.name == names.SPAN_JOB.name)
    assert [span.parent_span_id for span in spans(sink)] == [job.span_id] * 2
    assert names.RL_STEP_TIMING.name not in sink.names(), "verl logs the time with its step"
    assert not guard.failures


def test_after_the_run_nothing_is_measured_and_a_second_one_is(sink: OtlpSink) -> None:
    first = Trainer()
    first.end()
    first.save()
    second = Recipe()
    second.save()
    second.end()
    assert [histogram.count for histogram in stages(sink).values()] == [1]


def test_a_save_that_fails_is_a_failure_and_passes_on(sink: OtlpSink) -> None:
    error = OSError("/data is full")
    trainer = Trainer(error=error)
    with pytest.raises(OSError) as raised:
        trainer.save()
    assert raised.value is error
    assert pauses() == {"evaluating": 0, "checkpointing": 0}
    trainer.error = None
    trainer.save()
    trainer.end()
    assert {key: histogram.count for key, histogram in stages(sink).items()} == {
        ("full_state", "failure"): 1,
        ("full_state", "success"): 1,
    }
    assert [span.status for span in spans(sink)] == [2, 0]


def test_a_trainer_whose_method_is_a_coroutine(sink: OtlpSink) -> None:
    class Later(Trainer):
        async def _save_checkpoint(self) -> None:  # type: ignore[override]
            await asyncio.sleep(0.02)

        async def save(self) -> None:  # type: ignore[override]
            await self._save_checkpoint()

    trainer = Later()
    asyncio.run(trainer.save())
    trainer.end()
    (histogram,) = stages(sink).values()
    assert histogram.sum >= 0.02


class Engine:
    def is_mp_src_rank_with_outputs(self) -> bool:
        return True

    def get_data_parallel_rank(self) -> int:
        return 0

    def save_checkpoint(self, local_path: str, **_: Any) -> None:
        Path(local_path).mkdir(parents=True)


class Loader:
    def state_dict(self) -> dict[str, int]:
        return {}


class Supervised:
    """As verl's, with verl's real handler of checkpoints."""

    def __init__(self, folder: Path) -> None:
        self.ckpt_handler = checkpoint_handler.CheckpointHandler(
            engine=Engine(),
            train_dataloader=Loader(),
            default_local_dir=str(folder),
            mode=checkpoint_handler.OrchestrationMode.RAY,
        )

    def fit(self) -> None:
        tracking = make(changed(SFT, "trainer.default_local_dir", str(self.ckpt_handler.default_local_dir)))
        tracking.log(data={"train/loss": 1.0}, step=1)
        self.ckpt_handler.save_checkpoint(step=1)
        tracking.finish()


def test_a_supervised_trainer_s_save_is_a_stage_and_a_time_that_verl_does_not_log(
    sink: OtlpSink, tmp_path: Path
) -> None:
    Supervised(tmp_path).fit()
    (histogram,) = stages(sink).values()
    assert (tmp_path / TRACKER).read_text() == "1"
    phase = {names.ATTR_SFT_STEP_PHASE: names.SftStepPhase.SAVE_CHECKPOINT}
    assert sink.latest(names.SFT_STEP_TIMING, phase).value == pytest.approx(histogram.sum, abs=0.01)


def test_a_fully_asynchronous_trainer_s_last_save_is_in_no_log(sink: OtlpSink) -> None:
    """Its process is killed: what it saved last has to be sent by then."""
    trainer = Trainer({**RL, "async_training": {}})
    trainer.save()
    wait_until(lambda: DURATION.name in sink.names())
    phase = {names.ATTR_RL_STEP_PHASE: names.RlStepPhase.SAVE_CHECKPOINT}
    wait_until(lambda: bool(sink.series(names.RL_STEP_TIMING, phase)))
    trainer.end()


# -- asynchronous saves


def asynchronous(folder: Path) -> dict[str, Any]:
    config = changed(changed(RL, f"{ACTOR}.{ASYNCHRONOUS}", True), "trainer.resume_mode", "disable")
    return changed(config, "trainer.default_local_dir", str(folder))


def note(folder: Path, step: int) -> None:
    """As the worker does that has written the last of a checkpoint."""
    (folder / f"global_step_{step}").mkdir(parents=True, exist_ok=True)
    (folder / TRACKER).write_text(str(step))


def test_an_asynchronous_save_ends_when_verl_notes_it(sink: OtlpSink, tmp_path: Path) -> None:
    trainer = Trainer(asynchronous(tmp_path))
    begin = time.perf_counter()
    trainer.save()
    time.sleep(0.5)
    telemetry = trainer.tracking.logger["akka_otel"]._telemetry
    assert telemetry.flush(5)
    assert DURATION.name not in sink.names(), "it is not written yet"
    note(tmp_path, 1)
    noted = time.perf_counter() - begin
    wait_until(lambda: telemetry.flush(5) and DURATION.name in sink.names())
    trainer.end()
    histogram = stages(sink)["full_state", "success"]
    assert histogram.count == 1
    assert 0.5 <= histogram.sum < noted + 5


def test_asynchronous_saves_that_overlap_end_in_their_order(sink: OtlpSink, tmp_path: Path) -> None:
    trainer = Trainer(asynchronous(tmp_path))
    trainer.save()
    trainer.save()
    trainer.save()
    note(tmp_path, 2)
    wait_until(lambda: sum(histogram.count for histogram in stages(sink).values()) == 2)
    note(tmp_path, 3)
    trainer.end()
    assert sum(histogram.count for histogram in stages(sink).values()) == 3


def test_an_asynchronous_save_that_is_not_seen_to_end_is_in_no_figure(
    sink: OtlpSink, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    note(tmp_path, 7)  # of a training before
    trainer = Trainer(asynchronous(tmp_path))
    trainer.save()
    trainer.end()
    assert DURATION.name not in sink.names()
    assert "1 asynchronous saves were not seen to end" in caplog.text


def test_an_asynchronous_save_that_fails_at_once_is_a_failure(sink: OtlpSink, tmp_path: Path) -> None:
    trainer = Trainer(asynchronous(tmp_path), OSError())
    with pytest.raises(OSError):
        trainer.save()
    trainer.end()
    assert [*stages(sink)] == [("full_state", "failure")]


# -- what a checkpoint holds


LORA = changed(RL, f"{ACTOR}.save_lora_only", True)
WHOLE = changed(LORA, "actor_rollout_ref.model.lora_rank", 0)


@pytest.mark.parametrize(
    ("config", "contents", "kind"),
    [
        (RL, None, "full_state"),
        (RL, ["model", "optimizer", "extra"], "full_state"),
        (RL, ["model", "optimizer", "extra", "hf_model"], "full_state"),
        (RL, ["model"], None),
        (RL, ["model", "optimizer"], None),
        (RL, ["hf_model"], None),
        (LORA, ["model"], "adapter"),
        (LORA, ["model", "optimizer", "extra"], "full_state"),
        (LORA, ["model", "hf_model"], None),
        (WHOLE, ["model"], None),
    ],
)
def test_what_a_checkpoint_holds(config: dict[str, Any], contents: list[str] | None, kind: str | None) -> None:
    settings = config if contents is None else changed(config, f"{ACTOR}.{CONTENTS}", contents)
    assert artifact_kind(settings) == kind


def test_what_a_supervised_checkpoint_holds() -> None:
    assert artifact_kind(SFT) == "full_state"
    assert artifact_kind(changed(SFT, f"checkpoint.{CONTENTS}", ["model"])) is None


def test_a_run_without_the_word_is_left_alone(sink: OtlpSink) -> None:
    class Unwatched(Trainer):
        def __init__(self) -> None:
            self.tracking = make(logger=["console"])

    saves: Callable[..., None] = Unwatched._save_checkpoint
    Unwatched()
    assert Unwatched._save_checkpoint is saves
