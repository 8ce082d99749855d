"""What people do with trainers and callbacks: with telemetry each does what it does without, and is told truly."""

from __future__ import annotations

import copy
import functools
import gc
import inspect
import logging
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import trl
from transformers import Trainer, TrainerCallback

from akka_otel_callbacks.common import guard
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.testing import TelemetryInMemory, telemetry_in_memory
from akka_otel_callbacks.trl import AkkaTelemetryCallback, running, session, taps
from tests.support.otlp_sink import otlp_sink
from tests.trl.runs import exported_run, parameters_of
from tests.trl.trainings import Book, online, sft

COUNT, RL_COUNT, LOSS = names.SFT_STEP_COUNT.name, names.RL_STEP_COUNT.name, names.SFT_STEP_LOSS.name


@pytest.fixture
def memory() -> Iterator[TelemetryInMemory]:
    guard.failures.clear()
    before = listened_to()  # a test that lets the end of a training fail leaves one behind
    with telemetry_in_memory() as opened:
        yield opened
    assert not guard.failures
    assert listened_to() == before, "nobody listens after the last training"
    assert running._running == ()


def listened_to() -> dict[str, dict[int, Any]]:
    return {name: dict(hearers) for name, hearers in taps._all_hearers.items() if hearers}


def ours(memory: TelemetryInMemory, **options: Any) -> AkkaTelemetryCallback:
    return AkkaTelemetryCallback(
        meter_provider=memory.meter_provider, tracer_provider=memory.tracer_provider, **options
    )


def jobs(memory: TelemetryInMemory) -> list[Any]:
    return [span for span in memory.spans() if span.name == names.SPAN_JOB.name]


def logged_losses(trainer: Trainer) -> list[float]:
    return [row["loss"] for row in trainer.state.log_history if "loss" in row]


def equal(first: dict[str, torch.Tensor], second: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(first[name], second[name]) for name in first)


@pytest.fixture(scope="module")
def trained(tiny_model: str) -> dict[str, torch.Tensor]:
    """The parameters after two steps of SFT without telemetry."""
    trainer = sft(tiny_model, [], max_steps=2)
    trainer.train()
    return parameters_of(trainer)


# -- trainers that are temporary, copied, pickled or collected


def test_a_trainer_without_a_variable(tiny_model: str, memory: TelemetryInMemory) -> None:
    sft(tiny_model, [ours(memory)], max_steps=2).train()
    assert memory.latest(COUNT) == 2
    online("GRPO", tiny_model, [ours(memory)], max_steps=1).train()
    assert memory.latest(RL_COUNT) == 1
    assert len(jobs(memory)) == 2


class NamesItsArguments(trl.GRPOTrainer):  # type: ignore[misc]
    """A trainer of somebody's who calls TRL's methods by keyword."""

    def training_step(self, model: Any, inputs: Any, num_items_in_batch: Any = None) -> Any:
        model.train()
        prepared = self._prepare_inputs(generation_batch=inputs)
        loss = self.compute_loss(model=model, inputs=prepared, num_items_in_batch=num_items_in_batch)
        self.accelerator.backward(loss)
        return loss.detach()


def test_calls_that_name_their_arguments(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory, peak_flops=1e12)
    trainer = online("GRPO", tiny_model, [callback], trainer_class=NamesItsArguments, max_steps=1)
    type(trainer).train(self=trainer)
    assert memory.latest(RL_COUNT) == 1
    assert memory.latest(names.RL_STEP_MFU.name) > 0


class Unusual(TrainerCallback):
    def __eq__(self, other: object) -> bool:
        raise ValueError("not to be compared")

    __hash__ = object.__hash__


class Empty(trl.SFTTrainer):  # type: ignore[misc]
    def __len__(self) -> int:
        return 0


def test_objects_with_ideas_of_their_own(tiny_model: str, memory: TelemetryInMemory) -> None:
    sft(tiny_model, [Unusual(), ours(memory), Unusual()], trainer_class=Empty, max_steps=1).train()
    assert memory.latest(COUNT) == 1


def test_a_class_in_the_place_of_a_callback(tiny_model: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    sft(tiny_model, [AkkaTelemetryCallback], max_steps=1).train()  # type: ignore[list-item]
    assert COUNT in (tmp_path / "metrics.jsonl").read_text()


def test_a_copied_trainer_trains_the_copy(tiny_model: str, memory: TelemetryInMemory, trained: Any) -> None:
    trainer = sft(tiny_model, [ours(memory)], max_steps=2)
    before = parameters_of(trainer)
    twin = copy.deepcopy(trainer)
    twin.train()
    assert equal(parameters_of(trainer), before)
    assert equal(parameters_of(twin), trained)
    assert (memory.latest(COUNT), trainer.state.global_step) == (2, 0)
    trainer.train()
    assert equal(parameters_of(trainer), trained)
    assert len({job.attributes.get("x", job.context.span_id) for job in jobs(memory)}) == 2


class CopiesItself(TrainerCallback):
    """Copies the trainer in the middle of its training and trains the copy there."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.twin: Any = None

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1 and self.twin is None:
            trainer, self.trainer = self.trainer, None
            self.twin = copy.deepcopy(trainer)
            self.twin.callback_handler.callbacks = [
                found for found in self.twin.callback_handler.callbacks if not isinstance(found, CopiesItself)
            ]
            self.twin.train()


def test_a_trainer_that_is_copied_and_trained_within_its_training(tiny_model: str, memory: TelemetryInMemory) -> None:
    copies = CopiesItself()
    trainer = sft(tiny_model, [ours(memory), copies], max_steps=3)
    copies.trainer = trainer
    trainer.train()
    assert copies.twin.state.global_step == 3
    assert len(jobs(memory)) == 2
    assert memory.latest(COUNT) == 3


@pytest.mark.parametrize("options", [{}, {"project": "p", "run_id": "r", "attempt": 2, "peak_flops": 1e12}])
def test_a_pickled_callback(options: dict[str, Any], tiny_model: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("AKKA_OTEL_DIR", str(tmp_path))
    callback = AkkaTelemetryCallback(**options)
    sft(tiny_model, [callback], max_steps=1).train()  # used ones, too
    for again in (pickle.loads(pickle.dumps(callback)), copy.deepcopy(callback)):
        sft(tiny_model, [again], max_steps=1).train()
    lines = (tmp_path / "metrics.jsonl").read_text()
    if options:
        assert '"r.2.0"' in lines
    assert COUNT in lines


def test_a_pickled_trainer_is_as_without_the_callback(tiny_model: str, memory: TelemetryInMemory) -> None:
    def pickled(callbacks: list[TrainerCallback]) -> Any:
        trainer = sft(tiny_model, callbacks, max_steps=2)
        try:
            return pickle.loads(pickle.dumps(trainer))
        except Exception as error:  # noqa: BLE001 - whatever it is without us
            return type(error), str(error)

    plain, watched = pickled([]), pickled([ours(memory)])
    if isinstance(plain, tuple):
        assert watched == plain
    else:
        watched.train()
        assert watched.state.global_step == 2


def test_providers_stay_behind_with_one_line(memory: TelemetryInMemory, caplog: Any, tiny_model: str) -> None:
    again = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(ours(memory)))))
    with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
        sft(tiny_model, [again], max_steps=1).train()
    assert [record.getMessage().split(":")[0] for record in warnings(caplog)] == [
        "providers cannot be taken into another process"
    ]


def test_a_subclass_of_the_callback(tiny_model: str, memory: TelemetryInMemory) -> None:
    class Own(AkkaTelemetryCallback):
        def __init__(self, note: list[str], **options: Any) -> None:
            super().__init__(**options)
            self.note = note

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            super().on_step_end(*args, **kwargs)
            self.note.append("step")

    callback = Own([], meter_provider=memory.meter_provider)
    sft(tiny_model, [callback], max_steps=2).train()
    assert callback.note == ["step"] * 2
    assert copy.deepcopy(callback).note == ["step"] * 2
    assert memory.latest(COUNT) == 2


def test_a_training_that_cannot_be_described_has_its_figures(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "engine_attributes", lambda *given: 1 / 0)
    with telemetry_in_memory() as memory:
        sft(tiny_model, [ours(memory)], max_steps=1).train()
        assert memory.latest(COUNT) == 1


def test_memory_comes_back_with_the_last_reference(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    trainer = sft(tiny_model, [callback], max_steps=1)
    trainer.train()
    trainer.evaluate()
    model = weakref.ref(trainer.model)
    del trainer
    gc.collect()
    assert model() is None, "the callback that is still there does not hold it"


# -- patches of classes and of instances


def test_a_patch_of_train_after_the_trainer_was_made(
    tiny_model: str, memory: TelemetryInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = sft(tiny_model, [ours(memory)], max_steps=1)
    original, patched = Trainer.train, []

    @functools.wraps(original)
    def train(self: Any, *args: Any, **kwargs: Any) -> Any:
        patched.append(self)
        return original(self, *args, **kwargs)

    monkeypatch.setattr(Trainer, "train", train)
    trainer.train()
    trainer.train()
    assert patched == [trainer] * 2
    assert memory.latest(COUNT) == 1
    assert len(jobs(memory)) == 2


def test_patches_of_the_methods_that_are_heard(
    tiny_model: str, memory: TelemetryInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = sft(tiny_model, [ours(memory)], max_steps=2)
    patched: list[str] = []

    def patch(owner: Any, name: str) -> None:
        original = getattr(owner, name)

        def method(*args: Any, **kwargs: Any) -> Any:
            patched.append(name)
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, method)

    patch(Trainer, "training_step")
    patch(trl.SFTTrainer, "compute_loss")
    patch(trainer, "get_batch_samples")
    trainer.train()
    assert {name: patched.count(name) for name in patched} == {
        "training_step": 4,
        "compute_loss": 4,
        "get_batch_samples": 2,
    }
    assert memory.latest(LOSS) == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)


class PutsBack(TrainerCallback):
    """Gives a class the method that it had before it was tapped, once, at an event of the second step."""

    def __init__(self, event: str, owner: type[Any], name: str) -> None:
        self.replaced = 0
        original = vars(owner)[name]

        def put_back(args: Any, state: Any, *_: Any, **__: Any) -> None:
            if state.global_step == 1 and not self.replaced:
                self.replaced = 1
                assert vars(owner)[name] is not original, "it was tapped"
                setattr(owner, name, original)

        setattr(self, event, put_back)


def test_a_step_s_method_that_is_put_back_amid_is_heard_again(tiny_model: str) -> None:
    class Own(trl.SFTTrainer):  # type: ignore[misc]
        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            return inspect.unwrap(Trainer.training_step)(self, *args, **kwargs)

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        puts_back = PutsBack("on_step_begin", Own, "training_step")
        return sft(tiny_model, [*callbacks, puts_back], trainer_class=Own, max_steps=3)

    run = exported_run(make)
    known = [run.shown(names.SFT_STEP_PADDING, step) is not None for step in run.steps]
    assert known == [True, False, True]
    for step in run.steps:
        assert run.shown(names.SFT_STEP_LOSS, step, event="log") == pytest.approx(run.row(step)["loss"], abs=1e-4)


class Unwatched(Book):
    def watching(self, trainer_class: type[Trainer]) -> type[Trainer]:
        return trainer_class


def test_a_loss_that_is_put_back_within_a_step_leaves_no_efficiency_of_a_part_of_it(tiny_model: str) -> None:
    class Own(trl.GRPOTrainer):  # type: ignore[misc]
        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            return inspect.unwrap(trl.GRPOTrainer.compute_loss)(self, *args, **kwargs)

    def make(callbacks: list[TrainerCallback]) -> Trainer:
        puts_back = PutsBack("on_substep_end", Own, "compute_loss")
        return online("GRPO", tiny_model, [*callbacks, puts_back], book=Unwatched(), trainer_class=Own, max_steps=4)

    run = exported_run(make, callback=AkkaTelemetryCallback(peak_flops=1e12))
    known = [run.shown(names.RL_STEP_MFU, step) is not None for step in run.steps]
    assert known == [True, False, False, True]


def test_a_train_that_is_replaced_and_fails(
    tiny_model: str, memory: TelemetryInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Unsloth compiles transformers' methods anew."""
    trainer = sft(tiny_model, [ours(memory)], max_steps=2)
    monkeypatch.setattr(Trainer, "train", inspect.unwrap(Trainer.train))
    trainer.train()
    assert [job.status.status_code.name for job in jobs(memory)] == ["UNSET"]
    assert memory.latest(COUNT) == 2
    trainer.add_callback(At(step_1=lambda: 1 / 0))
    with pytest.raises(ZeroDivisionError):
        trainer.train()
    assert [job.status.status_code.name for job in jobs(memory)] == ["UNSET", "ERROR"], "it is heard again"


# -- several callbacks, several trainers


def test_a_second_callback_stands_back(tiny_model: str, memory: TelemetryInMemory, caplog: Any) -> None:
    with telemetry_in_memory() as other:
        trainer = sft(tiny_model, [ours(memory), ours(other)], max_steps=2)
        with caplog.at_level(logging.WARNING, "akka_otel_callbacks"):
            trainer.train()
            trainer.evaluate()
            trainer.train()
        assert [record.getMessage() for record in warnings(caplog)] == [
            "another AkkaTelemetryCallback publishes this training, so this one does nothing"
        ]
        assert not other.names()
        assert not jobs(other)
    assert memory.latest(COUNT) == 2
    assert len(jobs(memory)) == 3


def test_a_callback_twice_in_one_list(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    trainer = sft(tiny_model, [callback, callback], max_steps=2)
    trainer.train()
    assert memory.latest(COUNT) == 2
    assert memory.latest(LOSS) == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)
    assert memory.histogram(names.SFT_STEP_DURATION.name).count == 2
    assert len(jobs(memory)) == 1


def test_one_callback_on_two_trainers_by_turns(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    first, second = (sft(tiny_model, [callback], max_steps=steps) for steps in (1, 2))
    for trainer, steps in ((first, 1), (second, 2), (first, 1), (second, 2)):
        trainer.train()
        assert memory.latest(COUNT) == steps
        assert memory.latest(LOSS) == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)
    assert len(jobs(memory)) == 4


def test_one_callback_on_two_trainers_at_once(tiny_model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In turn, a step each, so that every event of one stands between two of the other."""
    turns = threading.Barrier(2, timeout=60)

    class Waits(TrainerCallback):
        def on_step_begin(self, *args: Any, **kwargs: Any) -> None:
            turns.wait()

        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            turns.wait()

    callback = AkkaTelemetryCallback(run_id="both")
    rates = (1e-3, 2e-3)
    trainers = [sft(tiny_model, [Waits(), callback], max_steps=3, learning_rate=rate) for rate in rates]
    with otlp_sink() as sink:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", sink.http)
        threads = [threading.Thread(target=trainer.train) for trainer in trainers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        points = sink.metrics()
    assert {point.resource[names.ATTR_RUN_ATTEMPT.name] for point in points} == {1, 2}
    for trainer, rate in zip(trainers, rates, strict=True):
        own = [point for point in points if point.resource[names.ATTR_RUN_LEARNING_RATE.name] == rate]
        last = {point.name: point.value for point in own if point.kind in ("gauge", "sum")}
        assert last[COUNT] == 3
        assert last[LOSS] == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)
        assert last[names.SFT_STEP_LEARNING_RATE.name] == pytest.approx(rate / 3)
        assert {point.resource[names.ATTR_RUN_ATTEMPT.name] for point in own} in ({1}, {2})


class TrainsWithin(TrainerCallback):
    """Trains another trainer within a step."""

    def __init__(self, inner: Callable[[], Trainer]) -> None:
        self.inner = inner
        self.trained: list[Trainer] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step == 1:
            trainer = self.inner()
            trainer.train()
            self.trained.append(trainer)


@pytest.mark.parametrize("shared", [True, False])
def test_a_training_within_a_training(shared: bool, tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    inner = TrainsWithin(lambda: sft(tiny_model, [callback if shared else ours(memory)], max_steps=1))
    trainer = sft(tiny_model, [callback, inner], max_steps=3)
    trainer.train()
    assert memory.latest(COUNT) == 3
    assert memory.latest(LOSS) == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)
    assert len(jobs(memory)) == 2


def test_a_training_within_a_reward_function(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback, trained = ours(memory), []

    def learned(completions: list[str], **_: Any) -> list[float]:
        if not trained:
            trained.append(sft(tiny_model, [callback], max_steps=1))
            trained[0].train()
        return [float(len(text)) for text in completions]

    trainer = online("GRPO", tiny_model, [callback], rewards={learned: 1.0}, max_steps=2)
    trainer.train()
    assert (memory.latest(RL_COUNT), memory.latest(COUNT)) == (2, 1)
    logged = [row for row in trainer.state.log_history if "reward" in row][-1]
    assert memory.latest(names.RL_STEP_REWARD.name) == pytest.approx(logged["reward"], rel=1e-5)


# -- callbacks that come and go


def test_a_late_callback_and_the_end_of_its_training(tiny_model: str, memory: TelemetryInMemory) -> None:
    class Fails(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            if state.global_step == 2:
                raise KeyboardInterrupt

    trainer = sft(tiny_model, [Fails()], max_steps=3)
    callback = ours(memory)
    trainer.add_callback(callback)
    with pytest.raises(KeyboardInterrupt):
        trainer.train()
    assert callback.telemetry is None
    (job,) = jobs(memory)
    assert job.status.status_code.name == "ERROR"


class At(TrainerCallback):
    """Does something at the end of given steps."""

    def __init__(self, **at: Callable[[], Any]) -> None:
        self.at = at

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if (do := self.at.get(f"step_{state.global_step}")) is not None:
            do()


def test_a_callback_that_joins_in_the_middle(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    trainer = sft(tiny_model, [At(step_2=lambda: trainer.add_callback(callback))], max_steps=4)
    trainer.train()
    assert memory.latest(COUNT) == 2
    assert memory.latest(LOSS) == pytest.approx(logged_losses(trainer)[-1], abs=1e-4)
    assert len(jobs(memory)) == 1


def test_a_copy_in_the_place_of_the_trainers_state(tiny_model: str, memory: TelemetryInMemory) -> None:
    replaces = At()
    trainer = sft(tiny_model, [replaces, ours(memory)], max_steps=3)
    replaces.at["step_1"] = lambda: setattr(trainer, "state", copy.deepcopy(trainer.state))
    trainer.train()
    assert memory.latest(COUNT) == 3
    assert len(jobs(memory)) == 1


@pytest.mark.parametrize("fails", [False, True])
def test_a_callback_that_leaves_in_the_middle(
    fails: bool, tiny_model: str, memory: TelemetryInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    from akka_otel_callbacks.trl import sft as ours_sft

    heard: list[int] = []
    known = ours_sft.SFTLoop._stepped
    monkeypatch.setattr(
        ours_sft.SFTLoop,
        "_stepped",
        lambda loop, *args: (heard.append(trainer.state.global_step), known(loop, *args)),
    )

    def stop() -> None:
        if fails:
            raise ValueError

    callback = ours(memory)
    trainer: Any = sft(
        tiny_model, [callback, At(step_2=lambda: trainer.remove_callback(callback), step_9=stop)], max_steps=9
    )
    if fails:
        with pytest.raises(ValueError):
            trainer.train()
    else:
        trainer.train()
    assert heard[:4] == [0, 0, 1, 1]
    assert len(heard) - 4 < taps.ASKED_EVERY, "nothing piles up"
    assert memory.latest(COUNT) == 2
    assert callback.telemetry is None
    assert len(jobs(memory)) == 1


def test_a_callback_that_was_away(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    trainer = sft(
        tiny_model,
        [
            callback,
            At(
                step_1=lambda: trainer.remove_callback(callback),
                step_3=lambda: trainer.add_callback(callback),
            ),
        ],
        max_steps=4,
    )
    trainer.train()
    tokens = [row["num_tokens"] for row in trainer.state.log_history if "loss" in row]
    assert memory.latest(COUNT) == 2, "the first and the last"
    assert memory.latest(names.SFT_STEP_TOKENS.name) == tokens[3] - tokens[2], "of its own step"
    assert len(jobs(memory)) == 1


def test_a_callback_that_is_used_again(tiny_model: str, memory: TelemetryInMemory) -> None:
    callback = ours(memory)
    for steps in (3, 2):
        trainer = sft(tiny_model, [], max_steps=steps)
        trainer.add_callback(callback)
        trainer.train()
        trainer.remove_callback(callback)
        assert memory.latest(COUNT) == steps
    assert len(jobs(memory)) == 2


# -- evaluations around a training


def test_the_port_is_free_after_an_evaluation(tiny_model: str, monkeypatch: Any) -> None:
    import socket

    pytest.importorskip("opentelemetry.exporter.prometheus")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("OTEL_METRICS_EXPORTER", "prometheus")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_HOST", "127.0.0.1")
    monkeypatch.setenv("OTEL_EXPORTER_PROMETHEUS_PORT", str(port))
    trainer = sft(tiny_model, [AkkaTelemetryCallback()], max_steps=1)
    trainer.train()
    trainer.evaluate()
    with socket.socket() as again:
        again.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        again.bind(("127.0.0.1", port))


def test_an_evaluation_that_is_not_a_number_is_counted(tiny_model: str, memory: TelemetryInMemory) -> None:
    class Broken(trl.SFTTrainer):
        def evaluate(self, *args: Any, **kwargs: Any) -> Any:
            with torch.no_grad():
                next(iter(self.model.parameters())).fill_(float("nan"))
            return super().evaluate(*args, **kwargs)

    sft(tiny_model, [ours(memory)], trainer_class=Broken).evaluate()
    label = {names.ATTR_TELEMETRY_METRIC.name: names.SFT_EVAL_LOSS.name}
    assert memory.latest(names.TELEMETRY_NONFINITE.name, label) == 1
    assert names.SFT_EVAL_LOSS.name not in memory.names()


# -- switches


def test_switched_off(tiny_model: str, memory: TelemetryInMemory, monkeypatch: Any, trained: Any) -> None:
    monkeypatch.setenv("AKKA_OTEL_DISABLE", "1")
    trainer = sft(tiny_model, [ours(memory)], max_steps=2)
    trainer.train()
    trainer.evaluate()
    assert equal(parameters_of(trainer), trained)
    assert not memory.names()
    assert not memory.spans()


def warnings(caplog: pytest.LogCaptureFixture) -> list[logging.LogRecord]:
    return [
        record
        for record in caplog.records
        if record.name == "akka_otel_callbacks" and record.levelno >= logging.WARNING
    ]
