"""The package's help for users' own tests, used as its documentation says."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep
from akka_otel_callbacks.testing import FakeGpu, FakeNvml, TelemetryInMemory, fake_gpus, telemetry_in_memory
from tests.common.reports import Report
from tests.support.otlp_sink import wait_until

REWARD, TERM, COUNT = names.RL_STEP_REWARD.name, names.RL_STEP_REWARD_TERM.name, names.RL_STEP_COUNT.name
LENGTH = names.RL_ROLLOUT_COMPLETION_LENGTH.name


@pytest.fixture
def memory() -> Iterator[TelemetryInMemory]:
    with telemetry_in_memory() as opened:
        yield opened


def training(memory: TelemetryInMemory, step_type: type = RLStep) -> Telemetry:
    providers = {"meter_provider": memory.meter_provider, "tracer_provider": memory.tracer_provider}
    return Telemetry.start(identify({}, engine={}), step_type, **providers)


def test_what_a_training_reported_is_readable_during_it_and_after() -> None:
    with telemetry_in_memory() as memory:
        telemetry = training(memory)
        telemetry.capture(Report(RLStep(number=1, reward=0.25, rollout_completion_length=[3, 5])), step=True)
        assert memory.latest(REWARD) == 0.25
        telemetry.capture(Report(RLStep(number=2, reward=0.5, rollout_completion_length=[4])), step=True)
        telemetry.close()
        assert memory.latest(REWARD) == 0.5
    assert (memory.latest(REWARD), memory.latest(COUNT)) == (0.5, 2)
    assert (memory.histogram(LENGTH).count, memory.histogram(LENGTH).sum) == (3, 12)
    assert {REWARD, COUNT, LENGTH} <= memory.names()
    assert [span.name for span in memory.spans()] == [names.SPAN_JOB.name]


def test_a_training_that_is_left_open_is_seen_at_the_block_s_end() -> None:
    with telemetry_in_memory() as memory:
        telemetry = training(memory, SFTStep)
        telemetry.capture(Report(SFTStep(number=1, loss=2.0)), step=True)
    assert memory.latest(names.SFT_STEP_LOSS.name) == 2.0
    telemetry.close()


def test_series_are_told_apart_by_their_attributes(memory: TelemetryInMemory) -> None:
    telemetry = training(memory)
    telemetry.capture(Report(RLStep(number=1, reward_term={"accuracy": 0.25, "total": 0.75})), step=True)
    label = names.ATTR_RL_TERM.name
    assert memory.latest(TERM, {label: "accuracy"}) == 0.25
    assert memory.latest(TERM, {label: "total"}) == 0.75
    with pytest.raises(LookupError, match=r"2 series of .*accuracy.*total"):
        memory.latest(TERM)
    with pytest.raises(LookupError, match=r"no series of .*accuracy.*total"):
        memory.latest(TERM, {label: "format"})
    telemetry.close()


def test_names_are_known_without_their_prefix(memory: TelemetryInMemory) -> None:
    telemetry = training(memory)
    step = RLStep(number=1, reward=0.5, reward_term={"accuracy": 0.25, "total": 0.5}, rollout_completion_length=[3, 5])
    telemetry.capture(Report(step), step=True)
    assert memory.latest("rl.step.reward") == memory.latest(REWARD) == 0.5
    assert memory.latest("rl.step.reward.term", {"rl.term": "accuracy"}) == 0.25
    assert memory.histogram("rl.rollout.completion.length").count == 2
    telemetry.close()


def test_a_name_that_is_not_there_is_answered_with_those_that_are(memory: TelemetryInMemory) -> None:
    telemetry = training(memory)
    telemetry.capture(Report(RLStep(number=1, reward=1.0, rollout_completion_length=[3])), step=True)
    with pytest.raises(LookupError, match=f"no series of reward .*{REWARD}"):
        memory.latest("reward")
    with pytest.raises(TypeError, match="is a histogram"):
        memory.latest(LENGTH)
    with pytest.raises(TypeError, match="is no histogram"):
        memory.histogram(REWARD)
    telemetry.close()


def test_lengths_are_exponential_here_too(memory: TelemetryInMemory) -> None:
    telemetry = training(memory)
    telemetry.capture(Report(RLStep(number=1, rollout_completion_length=[3])), step=True)
    assert hasattr(memory.histogram(LENGTH), "scale")
    telemetry.close()


def test_two_trainings_one_after_the_other(memory: TelemetryInMemory) -> None:
    for reward in (1.0, 2.0):
        telemetry = training(memory)
        telemetry.capture(Report(RLStep(number=1, reward=reward)), step=True)
        telemetry.close()
        assert (memory.latest(REWARD), memory.latest(COUNT)) == (reward, 1)


def test_as_the_documentation_shows_it(tmp_path: Path) -> None:
    """A real training with the callback."""
    pytest.importorskip("trl", reason="the TRL callback needs TRL")
    from trl import SFTConfig, SFTTrainer

    from akka_otel_callbacks.trl import AkkaTelemetryCallback
    from tests.support import tiny

    model = tiny.save(tmp_path / "model")
    args = SFTConfig(output_dir=str(tmp_path / "out"), max_steps=2, use_cpu=True, report_to="none", logging_steps=1)
    gpu = FakeGpu(power_mw=300_000)
    with telemetry_in_memory() as memory:
        callback = AkkaTelemetryCallback(meter_provider=memory.meter_provider, gpus=fake_gpus(FakeNvml(gpu), 0.01))
        trainer = SFTTrainer(model, args=args, train_dataset=tiny.texts(8), callbacks=[callback])
        trainer.train()
    assert memory.latest(names.SFT_STEP_COUNT.name) == 2
    assert memory.latest("hw.power", {"hw.id": gpu.uuid}) == 300
    assert memory.latest(names.SFT_STEP_LOSS.name) == pytest.approx(trainer.state.log_history[1]["loss"], rel=1e-4)
    assert list(tmp_path.rglob("*.jsonl")) == []


def test_fake_gpus_are_sampled_and_fail_on_request() -> None:
    gpu = FakeGpu(power_mw=300_000)
    nvml = FakeNvml(gpu)
    gpus = fake_gpus(nvml)
    gpus.start()
    try:
        wait_until(lambda: gpus.points(names.HW_POWER))
        ((watts, attributes),) = gpus.points(names.HW_POWER)
        assert (watts, attributes[names.ATTR_HW_ID.name]) == (300.0, gpu.uuid)
        wait_until(lambda: gpus.points(names.GPU_XID_ERRORS))
        nvml.xid(79)
        wait_until(lambda: gpus.points(names.GPU_XID_LAST))
        assert [code for code, _ in gpus.points(names.GPU_XID_LAST)] == [79]
    finally:
        gpus.stop()
