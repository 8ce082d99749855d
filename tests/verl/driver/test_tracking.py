"""The backend in verl's real `Tracking`, with a real OTLP receiver."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("verl", reason="verl is not installed in this environment")

import numpy as np
from verl.utils import tracking as verl_tracking

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.memory.account import Held, Peak, Phase, StepMemory
from akka_otel_callbacks.common.run import handed_on
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.verl import plugin, run
from akka_otel_callbacks.verl.driver import backend, tracking
from akka_otel_callbacks.verl.driver.rollouts import Rollouts
from akka_otel_callbacks.verl.state import STATE
from akka_otel_callbacks.verl.worker import memory
from tests.support.otlp_sink import OtlpSink, otlp_sink, wait_until
from tests.verl.recorded import calls
from tests.verl.recorded import steps as recorded_steps
from tests.verl.test_settings import RL, SFT


@pytest.fixture
def sink(monkeypatch: pytest.MonkeyPatch) -> Iterator[OtlpSink]:
    """Where the figures go; the process belongs to no run before and after."""
    for name in (
        "OTEL_METRICS_EXPORTER",
        "OTEL_TRACES_EXPORTER",
        "OTEL_SDK_DISABLED",
        handed_on.RUN_VARIABLE,
        "WORLD_SIZE",
    ):
        monkeypatch.delenv(name, raising=False)
    guard.failures.clear()
    with otlp_sink() as receiver:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.http)
        monkeypatch.setattr(plugin, "failed", {})
        tracking.install(verl_tracking)
        yield receiver


def make(config: Any = RL, logger: Any = ("akka_otel",)) -> Any:
    """As every trainer makes it."""
    return verl_tracking.Tracking(
        project_name="p",
        experiment_name="e",
        default_backend=logger if isinstance(logger, str) else list(logger),
        config=config,
    )


def test_a_run_that_did_not_ask_is_left_alone(sink: OtlpSink) -> None:
    made = make(logger=["console"])
    assert list(made.logger) == ["console"]
    assert not STATE.inbox.listening
    made.finish()
    assert sink.metrics() == []


@pytest.mark.parametrize("logger", [["console", "akka_otel"], ["akka_otel"], "akka_otel"])
def test_one_word_in_the_configuration(sink: OtlpSink, logger: Any) -> None:
    made = make(logger=logger)
    made.log(data={"training/global_step": 1, "critic/score/mean": np.float64(0.5), "timing_s/step": 2.0}, step=1)
    made.finish(exit_code=0)
    assert sink.latest(names.RL_STEP_COUNT).value == 1
    assert sink.latest(names.RL_STEP_REWARD).value == 0.5
    assert not guard.failures


def test_an_unknown_backend_is_still_refused(sink: OtlpSink) -> None:
    with pytest.raises(AssertionError, match="akka_hotel is not supported"):
        make(logger=["akka_hotel"])


def test_a_whole_recorded_run_arrives(sink: OtlpSink) -> None:
    made = make()
    for step, row in calls("v1_grpo_kl_val_2"):
        made.log(data=row, step=step)
    made.finish()
    _, last = calls("v1_grpo_kl_val_2")[-1]
    assert sink.latest(names.RL_STEP_COUNT).value == 3
    assert sink.latest(names.RL_STEP_KL).value == last["actor/kl_loss"]
    assert sink.latest(names.RL_STEP_TIMING, {names.ATTR_RL_STEP_PHASE: "ref"}).value == last["timing_s/ref"]
    assert sink.latest(names.RL_STEP_DURATION).histogram.count == 3
    assert sink.latest(names.JOB_DEVICES).value == 16
    resource = sink.latest(names.RL_STEP_COUNT).resource
    assert resource[names.ATTR_RUN_ENGINE.name] == "verl"
    assert resource[names.ATTR_RUN_METHOD.name] == "GRPO"
    assert resource[names.ATTR_RUN_GROUP_SIZE.name] == 4
    assert "secret" not in str(resource)


def test_a_step_that_fails_counts_and_has_no_figures(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter that stood still would look like a stalled run."""
    made, clock = make(), iter([1, 0, 1])
    monkeypatch.setattr(backend.update_clock, "end_update", lambda: 1 / next(clock))
    for step in (1, 2, 3):
        made.log(data={"training/global_step": step, "critic/score/mean": float(step)}, step=step)
    made.finish()
    assert sink.latest(names.RL_STEP_COUNT).value == 3
    assert sink.latest(names.TELEMETRY_DROPPED, {names.ATTR_TELEMETRY_REASON: "failed"}).value == 1
    assert {point.value for point in sink.series(names.RL_STEP_REWARD)} == {1.0, 3.0}
    assert list(guard.failures.values()) == [1]


def test_rollouts_come_with_the_step_that_they_belong_to(sink: OtlpSink) -> None:
    made = make()
    assert STATE.inbox.listening
    STATE.inbox.keep(
        Rollouts(scores=np.array([0.0, 1.0]), lengths=np.array([24.0, 5.0]), own_lengths=np.array([24, 5]))
    )
    made.log(data={"training/global_step": 1}, step=1)
    made.finish()
    assert not STATE.inbox.listening
    assert sink.latest(names.RL_STEP_COMPLETION_CLIPPED_RATIO).value == 0.5
    assert sink.latest(names.RL_ROLLOUT_REWARD, {names.ATTR_RL_TERM: "total"}).histogram.count == 2


def test_devices_that_cannot_be_counted_cost_their_count_alone(sink: OtlpSink) -> None:
    made = make({**RL, "trainer": {"nnodes": 1, "n_gpus_per_node": "auto"}})
    assert STATE.inbox.listening
    made.finish()


def test_memory_of_one_rank_is_not_published_as_the_most_of_all(sink: OtlpSink) -> None:
    made = make()
    made.log(data={"training/global_step": 1, "actor/perf/max_memory_allocated_gb": 4.0}, step=1)
    made.finish()
    assert names.RL_STEP_MEMORY_MAX_ALLOCATED.name not in sink.names()


@pytest.mark.parametrize(
    ("config", "row", "allocated"),
    [
        (RL, {"training/global_step": 1, "actor/grad_norm": 0.5}, names.RL_STEP_MEMORY_MAX_ALLOCATED),
        (SFT, {"train/loss": 0.5}, names.SFT_STEP_MEMORY_MAX_ALLOCATED),
    ],
)
def test_memory_is_published_with_its_step(
    sink: OtlpSink, monkeypatch: pytest.MonkeyPatch, config: Any, row: dict[str, float], allocated: Any
) -> None:
    peak = Peak(Held(weights=5), Phase(False, start=5, gradients=0, peak=8), 9, gradients=2, external=1, total=100)
    monkeypatch.setattr(memory, "answer", lambda: StepMemory(20, 30, peak))
    made = make(config)
    made.log(data=row, step=1)
    made.finish()
    assert sink.latest(allocated).value == 20
    parts = {
        point.attributes[names.ATTR_MEMORY_COMPONENT.name]: point.value for point in sink.series(names.STEP_MEMORY)
    }
    assert sum(parts.values()) == 100
    assert (parts["weights"], parts["gradients"], parts["activations"], parts["free"]) == (5, 2, 1, 90)


def test_on_a_cpu_there_are_no_devices(sink: OtlpSink) -> None:
    made = make({**RL, "trainer": {**RL["trainer"], "device": "cpu"}})
    made.finish()
    assert names.JOB_DEVICES.name not in sink.names()


@pytest.mark.parametrize("row", [None, 5, "text", [1, 2], {"training/global_step": object()}])
@pytest.mark.parametrize("step", [1, None, "one"])
def test_whatever_is_logged_training_goes_on(sink: OtlpSink, row: Any, step: Any) -> None:
    made = make()
    made.log(data=row, step=step)
    made.log(data={"training/global_step": 9}, step=9)
    made.finish()
    assert sink.latest(names.RL_STEP_COUNT).value >= 1


def test_a_backend_that_cannot_be_made_leaves_the_training_without_it(
    sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> None:
        raise OSError("no such thing")

    monkeypatch.setattr(backend, "Backend", broken)
    made = make(logger=["console", "akka_otel"])
    assert list(made.logger) == ["console"]
    made.log(data={"training/global_step": 1}, step=1)
    made.finish()
    assert guard.failures.total() == 1


def test_finishing_twice_is_finishing_once(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(backend, "flush_workers", lambda: flushed.append(1))
    made = make()
    made.finish()
    made.finish()
    made.logger["akka_otel"].finish()
    assert flushed == [1]


def test_the_workers_are_flushed_before_the_telemetry_closes(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    order: list[str] = []
    made = make()
    telemetry = made.logger["akka_otel"]._telemetry
    monkeypatch.setattr(backend, "flush_workers", lambda: order.append("workers"))
    close = telemetry.close
    monkeypatch.setattr(telemetry, "close", lambda error=None: order.append("close") or close(error))
    made.finish()
    assert order == ["workers", "close"]


def test_a_person_who_interrupts_the_wait_for_the_workers_ends_the_run(
    sink: OtlpSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    made = make()
    telemetry, first = made.logger["akka_otel"]._telemetry, run.identity(RL).run_id
    monkeypatch.setattr(backend, "flush_workers", interrupted)
    with pytest.raises(KeyboardInterrupt):
        made.finish()
    assert telemetry.closed
    assert run.identity(RL).run_id != first, "the next training of the process is another run"


def test_a_training_that_failed_says_so_on_the_jobs_span(sink: OtlpSink) -> None:
    def run() -> None:  # as verl's task runner does
        made = make()
        try:
            raise ZeroDivisionError
        finally:
            made.finish(exit_code=1)

    with pytest.raises(ZeroDivisionError):
        run()
    (span,) = [span for span in sink.spans() if span.name == names.SPAN_JOB.name]
    assert span.status == 2


def test_a_verl_without_finish_ends_with_the_object(sink: OtlpSink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 0.8 `Tracking` has `__del__` only."""

    class Old:
        supported_backend = ("console",)

        def __init__(
            self, project_name: str, experiment_name: str, default_backend: Any = "console", config: Any = None
        ) -> None:
            for name in [default_backend] if isinstance(default_backend, str) else default_backend:
                assert name in self.supported_backend
            self.logger: dict[str, Any] = {}

        def log(self, data: Any, step: int) -> None:
            for logger in self.logger.values():
                logger.log(data=data, step=step)

        def __del__(self) -> None:
            self.logger.get("wandb")

    tracking.install(SimpleNamespace(Tracking=Old))  # type: ignore[arg-type]
    made = Old("p", "e", ["akka_otel"], RL)
    made.log({"training/global_step": 1}, 1)
    del made
    assert sink.latest(names.RL_STEP_COUNT).value == 1


class OldTrainer:
    """A trainer that makes its `Tracking` in `fit` and never finishes it."""

    error: Exception | None = None

    def fit(self) -> str:
        logger = self.kept = make()  # verl's v0 keeps it in a variable only
        logger.log(data={"training/global_step": 1}, step=1)
        if self.error is not None:
            raise self.error
        return "fitted"


class AsyncTrainer(OldTrainer):
    async def fit(self) -> str:  # type: ignore[override]
        return OldTrainer.fit(self)


@pytest.fixture
def trainers() -> SimpleNamespace:
    """A module of verl with both kinds of trainer, hooked."""
    module = SimpleNamespace(
        RayPPOTrainer=type("RayPPOTrainer", (OldTrainer,), {"fit": OldTrainer.fit}),
        OneStepOffRayTrainer=type("OneStepOffRayTrainer", (OldTrainer,), {"fit": AsyncTrainer.fit}),
    )
    tracking.install_fit(module)  # type: ignore[arg-type]
    return module


def test_the_end_of_fit_is_the_end_of_the_run(sink: OtlpSink, trainers: SimpleNamespace) -> None:
    """Where Ray kills the process next, there is no other end."""
    assert trainers.RayPPOTrainer().fit() == "fitted"
    assert sink.latest(names.RL_STEP_COUNT).value == 1
    assert [span.status for span in sink.spans() if span.name == names.SPAN_JOB.name] == [0]


def test_the_end_of_a_coroutine_is_one_too(sink: OtlpSink, trainers: SimpleNamespace) -> None:
    assert fitted(trainers.OneStepOffRayTrainer()) == "fitted"
    assert sink.latest(names.RL_STEP_COUNT).value == 1


def fitted(trainer: Any) -> Any:
    result = trainer.fit()
    return asyncio.run(result) if asyncio.iscoroutine(result) else result


def test_a_fit_that_fails_says_so_and_still_raises(sink: OtlpSink, trainers: SimpleNamespace) -> None:
    for trainer in (trainers.RayPPOTrainer(), trainers.OneStepOffRayTrainer()):
        trainer.error = ConnectionError("a node is gone")
        with pytest.raises(ConnectionError, match="a node is gone"):
            fitted(trainer)
    assert [span.status for span in sink.spans() if span.name == names.SPAN_JOB.name] == [2, 2]


def test_a_fit_without_our_backend_ends_as_ever(sink: OtlpSink, trainers: SimpleNamespace) -> None:
    class Bare(trainers.RayPPOTrainer):  # type: ignore[misc, name-defined]
        def fit(self) -> int:
            return 5

    tracking.install_fit(SimpleNamespace(RayPPOTrainer=Bare))  # type: ignore[arg-type]
    assert Bare().fit() == 5
    assert not guard.failures


def test_an_actor_that_will_be_killed_exports_after_each_step(sink: OtlpSink) -> None:
    """fully_async ends the process with SIGKILL: what the next interval would send is lost."""
    made = make({**RL, "async_training": {"trigger_parameter_sync_step": 2}})
    made.log(data={"training/global_step": 1}, step=1)
    wait_until(lambda: names.RL_STEP_COUNT.name in sink.names())
    made.finish()


class SFTTrainer:
    """A supervised trainer as far as the backend knows it."""

    def __init__(self, config: Any) -> None:
        self.config = config

    def _get_batch_seqlens(self, data: Any) -> list[int]:
        return [len(data)]

    def fit(self) -> Any:
        made = make(self.config)
        for step in (1, 2):
            tokens = sum(self._get_batch_seqlens(data=[0] * 60))
            made.log(data={"train/loss": 1.0 / step, "train/global_tokens": tokens, "train/mfu": 0.25}, step=step)
            made.log(data={"val/loss": 3.0}, step=step)
        return made


def test_a_supervised_trainer(sink: OtlpSink) -> None:
    made = SFTTrainer(SFT).fit()
    made.finish()
    assert sink.latest(names.SFT_STEP_COUNT).value == 2
    assert sink.latest(names.SFT_STEP_LOSS).value == 0.5
    assert sink.latest(names.SFT_EVAL_LOSS).value == 3.0
    duration = sink.latest(names.SFT_STEP_DURATION).histogram
    assert duration.count == 2
    seconds = sink.latest(names.SFT_STEP_TIMING, {names.ATTR_SFT_STEP_PHASE: "step"}).value
    assert 0 < seconds <= duration.sum
    assert sink.latest(names.SFT_STEP_THROUGHPUT).value == pytest.approx(60 / seconds / 2)


def test_where_no_trainer_can_be_found_the_rest_is_still_published(sink: OtlpSink) -> None:
    made = make(SFT)
    made.log(data={"train/loss": 1.0}, step=1)
    made.finish()
    assert sink.latest(names.SFT_STEP_LOSS).value == 1.0
    assert names.SFT_STEP_DURATION.name not in sink.names()


def test_verls_supervised_trainers_still_begin_an_update_with_that_call() -> None:
    from pathlib import Path

    folder = Path(verl_tracking.__file__).parents[1] / "trainer"
    for trainer in ("sft_trainer.py", "sft_trainer_ray.py"):
        source = (folder / trainer).read_text()
        assert source.index("self._get_batch_seqlens(") < source.index(".train_batch(")


def test_verl_still_makes_it_with_these_names() -> None:
    import inspect

    assert isinstance(verl_tracking, ModuleType)
    parameters = inspect.signature(verl_tracking.Tracking.__init__).parameters
    assert list(parameters) == ["self", "project_name", "experiment_name", "default_backend", "config"]


def test_every_step_of_a_large_batch_arrives(sink: OtlpSink) -> None:
    """8192 rollouts with four terms a step, the log rows of a real run, at the default interval."""
    (_, row), rollouts, steps = recorded_steps("v1_grpo_kl_val_2")[-1], 8192, 10
    terms = ("accuracy", "format", "length", "penalty")
    scores = np.arange(rollouts) % 11 / 10
    made = make()
    for number in range(1, steps + 1):
        shares = {term: list((scores + number) / (place + 2)) for place, term in enumerate(terms[:-1])}
        shares["penalty"] = list(-scores / number)
        STATE.inbox.keep(
            Rollouts(
                scores=scores + number,
                lengths=np.arange(rollouts) % 512 + 1,
                own_lengths=np.arange(rollouts) % 512 + 1,
                groups=[f"prompt-{index // 8}" for index in range(rollouts)],
                terms=shares,
            )
        )
        made.log(data={**row, "training/global_step": number}, step=number)
    made.finish()
    rewards = [point.value for point in sink.series(names.RL_STEP_REWARD)]
    assert list(dict.fromkeys(rewards)) == pytest.approx([scores.mean() + step for step in range(1, steps + 1)])
    for term in ("total", *terms):
        histogram = sink.latest(names.RL_ROLLOUT_REWARD, {names.ATTR_RL_TERM: term}).histogram
        assert histogram.count == sum(histogram.counts) == rollouts * steps
    assert histogram.min == -1.0
    assert histogram.sum is None
    assert sink.latest(names.RL_ROLLOUT_REWARD_NEGATIVE).value == steps * (scores > 0).sum()
    lengths = sink.latest(names.RL_ROLLOUT_COMPLETION_LENGTH).histogram
    assert (lengths.count, lengths.sum) == (rollouts * steps, steps * (np.arange(rollouts) % 512 + 1).sum())
    assert not guard.failures
