"""The one thing that a TRL user adds: `callbacks=[AkkaTelemetryCallback()]`."""

from __future__ import annotations

import functools
import os
import time
import weakref
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

from transformers import TrainerCallback

from akka_otel_callbacks.common import names
from akka_otel_callbacks.common.gpu.health import GpuHealth
from akka_otel_callbacks.common.guard import guarded
from akka_otel_callbacks.common.identity import RunIdentity, generated_run_id, identify
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.common.step import SFTStep
from akka_otel_callbacks.common.telemetry import Telemetry
from akka_otel_callbacks.trl.accelerators import Rank, claim, publish_count, publish_gpus, tell_ranks
from akka_otel_callbacks.trl.attach import Wraps, find_trainer
from akka_otel_callbacks.trl.efficiency import Efficiency, efficiency
from akka_otel_callbacks.trl.loop import EVAL, STEP_TYPES, BegunAgain, Known, Loop, kind_of
from akka_otel_callbacks.trl.rl import RLLoop
from akka_otel_callbacks.trl.settings import engine_attributes
from akka_otel_callbacks.trl.sft import SFTLoop
from akka_otel_callbacks.trl.vocabulary import eval_loss, eval_runtime_s

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import TracerProvider
    from transformers import Trainer, TrainerControl, TrainerState, TrainingArguments

LOOPS: Mapping[str | None, type[Loop]] = {"rl": RLLoop, "sft": SFTLoop, None: SFTLoop}


class AkkaTelemetryCallback(TrainerCallback):  # type: ignore[misc]  # transformers is not typed
    """Publishes the figures of a GRPO, RLOO or SFT training through OpenTelemetry.

    Without any configuration the figures go to files under `akka-otel/<run id>/`; the standard `OTEL_*` variables
    send them to a collector or a Prometheus endpoint instead.

    Args:
        run_id: the run's ID; by default `akka.optimize.training.run.id` of `OTEL_RESOURCE_ATTRIBUTES`, or a new one.
        attempt: which attempt of that run this is, from 1.
        project: what the run belongs to, in dashboards.
        resource: more resource attributes, by full name.
        peak_flops: FLOP/s of one device, for the utilization (MFU); by default the dense bf16 peak of its kind.
        gpus: the GPUs to watch; by default those that the trainer trains on, sampled every 5 seconds.
        meter_provider: exports the metrics instead of a provider of the callback's own; it is flushed, not shut down.
            The resource is then that provider's: the callback cannot add the run's attributes to it.
        tracer_provider: the same for spans.
    """

    def __init__(
        self,
        *,
        run_id: str | None = None,
        attempt: int | None = None,
        project: str | None = None,
        resource: Mapping[str, Any] | None = None,
        peak_flops: float | None = None,
        gpus: GpuHealth | None = None,
        meter_provider: MeterProvider | None = None,
        tracer_provider: TracerProvider | None = None,
    ) -> None:
        self._arguments = {
            **(resource or {}),
            names.ATTR_RUN_ID.name: run_id,
            names.ATTR_RUN_ATTEMPT.name: attempt,
            names.ATTR_PROJECT.name: project,
        }
        self._generated_id = generated_run_id(names.RunEngine.TRL)
        self._peak_flops = peak_flops
        self._gpus = gpus
        self._meter_provider = meter_provider
        self._tracer_provider = tracer_provider
        self._trainer_ref: Any = lambda: None
        self._telemetry: Telemetry | None = None
        self._rank: Rank | None = None
        self._loop: Loop | None = None
        self._step_wraps = Wraps()
        self._wraps_train = False
        self._counted: tuple[Callable[[], Trainer | None], Efficiency | None] | None = None

    def attach(self, trainer: Trainer) -> AkkaTelemetryCallback:
        """Names the trainer, for the rare case that the callback cannot find it by itself. Returns the callback."""
        self._trainer_ref = weakref.ref(trainer)
        return self

    # Events, in the order in which a training fires them.

    @guarded
    def on_init_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if (trainer := find_trainer() or self._trainer_ref()) is not None:
            # An exception or Ctrl-C ends a training without an event; only its own frame sees every end.
            Wraps().around(trainer, "train", self._train)
            self._wraps_train = True
            if state.is_world_process_zero:
                self._count(trainer, args)  # FSDP has not hidden the model's shapes yet

    @guarded
    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._step_wraps.undo()  # `auto_find_batch_size` begins again without an end
        self._loop = None
        trainer = self._find()
        kind = kind_of(trainer)
        if state.is_world_process_zero:
            telemetry = self._open(trainer, args, kind)
            telemetry.capture(BegunAgain())
            self._watch(telemetry, trainer, args, state, kind)
        elif self._rank is None and (self._gpus or claim(trainer, args)):
            identity = functools.partial(self._identity, trainer, args, kind)
            self._rank = Rank(identity, self._gpus or GpuHealth(claim(trainer, args)), args)

    @guarded
    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._loop is not None:
            self._loop.begin_step()

    @guarded
    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._loop is not None:
            self._loop.gradients_ready(kwargs.get("optimizer"))

    @guarded
    def on_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if self._loop is not None:
            self._loop.optimized()

    @guarded
    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any) -> None:
        if self._loop is not None:
            self._loop.end_step(state)

    @guarded
    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if self._loop is not None:
            self._loop.logged(logs or {})

    @guarded
    def on_evaluate(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        metrics: Mapping[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        if state.is_world_process_zero:
            self._evaluated(args, metrics or {})

    @guarded
    def on_train_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        if not self._wraps_train:  # the callback joined too late to wrap the training
            self._end(None)

    def _train(self, train: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            result = train(*args, **kwargs)
        except BaseException as error:
            self._end(error)
            raise
        self._end(None)
        return result

    @guarded
    def _end(self, error: BaseException | None) -> None:
        self._step_wraps.undo()
        self._loop = None
        telemetry, self._telemetry = self._telemetry, None
        rank, self._rank = self._rank, None
        if telemetry is not None:
            telemetry.close(error)
        if rank is not None:
            rank.close()

    def _find(self) -> Trainer | None:
        """The trainer that calls, or the one that was named. A callback may serve several, one after the other."""
        trainer = find_trainer() or self._trainer_ref()
        if trainer is not None and trainer is not self._trainer_ref():
            self._end(None)  # an evaluation of the trainer before left its telemetry open
            self._trainer_ref = weakref.ref(trainer)
        return trainer

    def _open(self, trainer: Trainer | None, args: TrainingArguments, kind: str | None) -> Telemetry:
        """The telemetry of this training; one that is open already goes on, so that a retry is the same attempt."""
        if self._telemetry is None:
            identity = self._identity(trainer, args, kind, self._generated_id)
            self._telemetry = Telemetry.start(
                identity,
                STEP_TYPES.get(kind or "", SFTStep),
                meter_provider=self._meter_provider,
                tracer_provider=self._tracer_provider,
            )
            self._publish_accelerators(self._telemetry, trainer, args)
        return self._telemetry

    def _identity(self, trainer: Trainer | None, args: TrainingArguments, kind: str | None, run_id: str) -> RunIdentity:
        return identify(
            os.environ,
            engine=engine_attributes(trainer, args, kind),
            arguments=self._arguments,
            rank=args.process_index,
            run_id=run_id,
        )

    def _publish_accelerators(self, telemetry: Telemetry, trainer: Trainer | None, args: TrainingArguments) -> None:
        if not telemetry.recording:
            return
        publish_count(telemetry, trainer, args)
        if self._gpus is not None:
            publish_gpus(telemetry, self._gpus, args)  # they end with their owner
        elif held := claim(trainer, args):
            own = GpuHealth(held)
            publish_gpus(telemetry, own, args)
            telemetry.when_closed(own.stop)
        if args.world_size > 1:
            tell_ranks(telemetry.identity.run_id)

    def _watch(
        self,
        telemetry: Telemetry,
        trainer: Trainer | None,
        args: TrainingArguments,
        state: TrainerState,
        kind: str | None,
    ) -> None:
        if not telemetry.recording:
            return
        self._loop = LOOPS[kind](
            trainer,
            args,
            state,
            wraps=self._step_wraps,
            emit=telemetry.capture,
            efficiency=self._count(trainer, args),
        )
        if kind is None:
            logger.info(
                "%s is neither GRPO, RLOO nor SFT: only what it shares with SFT is published",
                type(trainer).__name__ if trainer is not None else "a trainer that could not be found",
            )
        elif self._loop.missing:
            logger.warning(
                "TRL %s has no %s: figures that come from there are taken from the log, at its interval, or absent",
                _trl_version(),
                ", ".join(self._loop.missing),
            )

    def _count(self, trainer: Trainer | None, args: TrainingArguments) -> Efficiency | None:
        """The trainer's efficiency, counted once."""
        if self._counted is None or self._counted[0]() is not trainer:
            found = guarded(efficiency)(trainer, args, self._peak_flops) if kind_of(trainer) is not None else None
            self._counted = weakref.ref(trainer) if trainer is not None else lambda: None, found
        return self._counted[1]

    def _evaluated(self, args: TrainingArguments, metrics: Mapping[str, Any]) -> None:
        """One evaluation, within a training or on its own."""
        trainer = self._find() if self._loop is None else self._trainer_ref()
        kind = kind_of(trainer)
        telemetry = self._open(trainer, args, kind)
        seconds = eval_runtime_s(metrics)
        if kind != "rl":
            telemetry.capture(Known(SFTStep(eval_loss=eval_loss(metrics), timing_s={EVAL: seconds})))
        if seconds is not None:
            now_ns = time.time_ns()
            telemetry.span(names.SPAN_EVAL, now_ns - int(seconds * 1e9), now_ns)


def _trl_version() -> str:
    try:
        return version("trl")
    except PackageNotFoundError:
        return "(not installed)"
