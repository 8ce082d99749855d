"""The trainers' own checkpoints: a duration, an outcome and a span for each save, of real trainings."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import peft
import pytest
import trl
from transformers import Trainer, TrainerCallback

from akka_otel_callbacks import checkpoints
from akka_otel_callbacks.common.run.attempt import Attempt
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.support.otlp_sink import OtlpSink, otlp_sink
from tests.support.points import SpanRecord
from tests.trl.runs import environment
from tests.trl.trainings import online, sft

ROOT = Path(__file__).parents[2]
DURATION, SIZE = names.CHECKPOINT_OPERATION_DURATION, names.CHECKPOINT_TRANSFER_SIZE
KIND, OUTCOME = names.ATTR_CHECKPOINT_ARTIFACT_KIND, names.ATTR_CHECKPOINT_OUTCOME
REASON, OPERATION = names.ATTR_CHECKPOINT_FAILURE_REASON, names.ATTR_CHECKPOINT_OPERATION
STAGE = names.SPAN_CHECKPOINT_OPERATION.of("stage")
SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "max_steps": 2}
LORA = peft.LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM")

Make = Callable[[list[TrainerCallback]], Trainer]


@pytest.fixture
def sink() -> Iterator[OtlpSink]:
    with otlp_sink() as opened, environment({"OTEL_EXPORTER_OTLP_ENDPOINT": opened.http}):
        yield opened


def train(make: Make, error: type[BaseException] | None = None) -> Trainer:
    trainer = make([AkkaTelemetryCallback()])
    if error is None:
        trainer.train()
    else:
        with pytest.raises(error):
            trainer.train()
    return trainer


def stages(sink: OtlpSink) -> list[SpanRecord]:
    return [span for span in sink.spans() if span.name == STAGE]


def last(sink: OtlpSink) -> dict[tuple[Any, ...], Any]:
    """Histograms of the stages by kind, outcome and reason, in the last export."""
    found = [point for point in sink.last_export() if point.name == DURATION.name]
    assert {point.attributes[OPERATION.name] for point in found} <= {"stage"}
    return {tuple(point.attributes.get(of.name) for of in (KIND, OUTCOME, REASON)): point.histogram for point in found}


class Timed(trl.SFTTrainer):
    """Knows how long its saves took."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.took: list[float] = []

    def _save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
        begin = time.perf_counter()
        super()._save_checkpoint(*args, **kwargs)
        time.sleep(0.02)
        self.took.append(time.perf_counter() - begin)


def test_each_save_is_a_stage(tiny_model: str, sink: OtlpSink) -> None:
    trainer = train(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Timed, **SAVING))
    (key, histogram), *others = last(sink).items()
    assert (key, others) == (("full_state", "success", None), [])
    assert histogram.count == len(trainer.took) == 2
    assert sum(trainer.took) <= histogram.sum < sum(trainer.took) + 0.5
    (job,) = (span for span in sink.spans() if span.name == names.SPAN_JOB.name)
    spans = stages(sink)
    assert [(span.trace_id, span.parent_span_id, span.status) for span in spans] == [(job.trace_id, job.span_id, 0)] * 2
    for span, took in zip(spans, trainer.took, strict=True):
        assert took <= (span.end_ns - span.start_ns) / 1e9 < took + 0.5
        assert job.start_ns < span.start_ns < span.end_ns < job.end_ns
    assert SIZE.name not in sink.names(), "a save to the disk of this machine is no upload"
    assert names.CHECKPOINT_PENDING.name not in sink.names(), "nobody publishes them"


@pytest.mark.parametrize(
    ("settings", "trainer", "kind"),
    [
        ({}, {}, "full_state"),
        ({"save_only_model": True}, {}, None),
        ({}, {"peft_config": LORA}, "full_state"),
        ({"save_only_model": True}, {"peft_config": LORA}, "adapter"),
    ],
    ids=["everything", "weights", "adapter with its optimizer", "adapter"],
)
@pytest.mark.parametrize("method", ["SFT", "GRPO"])
def test_what_a_save_left(
    method: str, settings: dict[str, Any], trainer: dict[str, Any], kind: str | None, tiny_model: str, sink: OtlpSink
) -> None:
    settings = {**SAVING, "max_steps": 1, **settings}

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        if method == "SFT":
            return sft(tiny_model, callbacks, trainer=trainer, **settings)
        return online("GRPO", tiny_model, callbacks, trainer=trainer, **settings)

    trained = train(make)
    assert last(sink).keys() == {(kind, "success", None)}
    (folder,) = Path(trained.args.output_dir).glob("checkpoint-*")
    left = {path.name for path in folder.iterdir()}
    assert ("optimizer.pt" in left) == (kind == "full_state")
    assert ("adapter_model.safetensors" in left) == bool(trainer)
    phase = names.RL_STEP_TIMING if method == "GRPO" else names.SFT_STEP_TIMING
    assert "save_checkpoint" in {value for point in sink.series(phase) for value in point.attributes.values()}


def test_a_save_in_several_shards_is_one(tiny_model: str, sink: OtlpSink) -> None:
    class Sharded(trl.SFTTrainer):
        def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
            self.model.save_pretrained(output_dir, max_shard_size="50KB")

    trainer = train(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Sharded, **SAVING))
    assert len([*Path(trainer.args.output_dir).glob("checkpoint-1/model-*.safetensors")]) > 1
    assert {key: histogram.count for key, histogram in last(sink).items()} == {("full_state", "success", None): 2}


def test_a_save_of_which_each_process_writes_a_shard_is_one(tiny_model: str, sink: OtlpSink, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node=2", "--rdzv_backend=c10d"]
    command += ["--rdzv_endpoint=127.0.0.1:0", "-m", "tests.trl.sharded_saves", str(tmp_path), tiny_model]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert len([*tmp_path.glob("*/checkpoint-2/optimizer_0/*.distcp")]) == 2
    assert {key: histogram.count for key, histogram in last(sink).items()} == {("full_state", "success", None): 2}
    assert len(stages(sink)) == 2


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
def test_a_save_that_fails_is_a_failure_and_the_training_s_own(
    error: type[BaseException], tiny_model: str, sink: OtlpSink
) -> None:
    class Full(trl.SFTTrainer):
        def _save_optimizer_and_scheduler(self, *args: Any, **kwargs: Any) -> None:
            if self.state.global_step == 2:
                raise error("/data/secret-bucket is full")
            super()._save_optimizer_and_scheduler(*args, **kwargs)

    train(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Full, **SAVING), error)
    counts = {key: histogram.count for key, histogram in last(sink).items()}
    assert counts == {("full_state", "success", None): 1, ("full_state", "failure", "internal"): 1}
    first, second = stages(sink)
    assert (first.status, second.status) == (0, 2)
    assert "secret" not in repr(sink.spans())
    timings = [point for point in sink.last_export() if point.name == names.SFT_STEP_TIMING.name]
    assert "save_checkpoint" in {point.attributes[names.ATTR_SFT_STEP_PHASE.name] for point in timings}


def test_a_real_disk_that_cannot_be_written(tiny_model: str, sink: OtlpSink, tmp_path: Path) -> None:
    (tmp_path / "checkpoint-1").write_text("in the way")
    train(lambda callbacks: sft(tiny_model, callbacks, output_dir=str(tmp_path), **SAVING), OSError)
    assert {key: histogram.count for key, histogram in last(sink).items()} == {("full_state", "failure", "internal"): 1}


def test_spans_come_also_where_nothing_takes_the_figures(tiny_model: str, sink: OtlpSink) -> None:
    with environment({"OTEL_METRICS_EXPORTER": "none"}):
        train(lambda callbacks: sft(tiny_model, callbacks, **SAVING))
    assert len(stages(sink)) == 2
    assert sink.metrics() == []


class Publishes(TrainerCallback):
    """A user's own publication, on the training's thread."""

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        with checkpoints.publish(storage_mode="object_store"), checkpoints.upload() as upload:
            upload.moved(1000)


def test_what_a_user_publishes_in_a_training_is_the_training_s(tiny_model: str, sink: OtlpSink) -> None:
    train(lambda callbacks: sft(tiny_model, [*callbacks, Publishes()], **SAVING))
    assert sink.latest(SIZE, {OPERATION: "upload"}).histogram.sum == 2000
    counts = {
        point.attributes[OPERATION.name]: point.histogram.count
        for point in sink.last_export()
        if point.name == DURATION.name
    }
    assert counts == {"stage": 2, "publish": 2, "upload": 2}
    assert len({span.trace_id for span in sink.spans()}) == 1
    assert len({point.resource[names.ATTR_RUN_ID.name] for point in sink.metrics()}) == 1


def test_of_two_trainings_at_once_each_can_be_named(tiny_model: str, sink: OtlpSink) -> None:
    outer, inner = AkkaTelemetryCallback(run_id="outer"), AkkaTelemetryCallback(run_id="inner")
    attempts = []

    class Evaluates(TrainerCallback):
        """Trains a probe in the middle of a training."""

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            sft(tiny_model, [inner, Uploads()], max_steps=1).train()

    class Uploads(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            attempts.append(outer.attempt)
            with checkpoints.upload(), checkpoints.validate(telemetry=outer.telemetry):
                pass

    sft(tiny_model, [outer, Evaluates()], max_steps=1).train()
    runs = {point.attributes[OPERATION.name]: point.resource[names.ATTR_RUN_ID.name] for point in sink.series(DURATION)}
    assert runs == {"upload": "inner", "validate": "outer"}
    assert (outer.telemetry, inner.telemetry, outer.attempt) == (None, None, None)
    assert attempts == [Attempt("outer", 1)]


def test_a_save_within_a_stage_of_the_user_s_is_a_part_of_it(tiny_model: str, sink: OtlpSink) -> None:
    class Stages(trl.SFTTrainer):
        def _maybe_log_save_evaluate(self, *args: Any, **kwargs: Any) -> Any:
            with checkpoints.stage(storage_mode="shared_filesystem"):
                return super()._maybe_log_save_evaluate(*args, **kwargs)

    train(lambda callbacks: sft(tiny_model, callbacks, trainer_class=Stages, **{**SAVING, "save_steps": 2}))
    points = [point for point in sink.last_export() if point.name == DURATION.name]
    assert [point.attributes[names.ATTR_CHECKPOINT_STORAGE_MODE.name] for point in points] == ["shared_filesystem"]
