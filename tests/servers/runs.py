"""Real runs that report to real servers: a reinforcement and a supervised training with TRL, and a trainer service."""

from __future__ import annotations

import time
from contextlib import ExitStack, suppress
from http.server import BaseHTTPRequestHandler
from typing import Any

import trl
from transformers import TrainerCallback

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.graders import GraderFailure, Judge, graded
from akka_otel_callbacks.service import (
    Claim,
    ClaimState,
    Operation,
    OperationOutcome,
    OperationStage,
    Pool,
    RunPhase,
    ServiceState,
    ServiceTelemetry,
    StageOutcome,
    StageType,
)
from akka_otel_callbacks.testing import FakeGpu, FakeNvml, fake_gpus
from akka_otel_callbacks.trl import AkkaTelemetryCallback
from tests.servers.gpus import DCGM_PERCENT, HEALTHY_GPU, SICK_GPU, SICK_THROTTLE, SICK_XID
from tests.servers.live import Live, Recording
from tests.support.judge_server import judge_server
from tests.support.otlp_sink import serving
from tests.trl.runs import environment
from tests.trl.trainings import Book, online, penalty, sft
from tools.prometheus import series_name

RUN_ID = "akka_optimize_training_run_id"
RULE = "rule:short.py"


class Held(TrainerCallback):
    """Stands behind our callback and waits until both servers have seen that the run began, and each of its steps."""

    def __init__(self, callback: AkkaTelemetryCallback, live: Live, name: str, counter: Any, last: int) -> None:
        self._callback, self._live, self._name, self._last = callback, live, name, last
        self._counter = series_name(counter, "scrape")
        self.began_s = time.time()
        self.recording: Recording | None = None

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._live.wait_for(f'akka_optimize_training_telemetry_dropped_total{{{RUN_ID}="{self._name}"}}')

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        assert self._callback.telemetry.flush(30)
        self._live.wait_for(f"{self._counter} == {state.global_step}")
        if state.global_step == self._last:
            self.recording = self._live.record(self.began_s)


class Dcgm(BaseHTTPRequestHandler):
    """What dcgm-exporter shows of the two GPUs."""

    def do_GET(self) -> None:
        lines = "".join(
            f'DCGM_FI_DEV_GPU_UTIL{{gpu="{index}",UUID="{gpu}",modelName="NVIDIA H100 80GB HBM3"}} {percent}\n'
            for index, (gpu, percent) in enumerate(DCGM_PERCENT.items())
        )
        with suppress(OSError):  # a scrape that had enough of it
            self.send_response(200)
            self.end_headers()
            self.wfile.write(lines.encode())

    def log_message(self, *args: object) -> None:
        pass


def reinforcement(live: Live, model: str, steps: int = 4) -> Recording:
    """GRPO with a rule that fails at times, a judge, negative rewards, evaluations, checkpoints and a GPU."""
    book = Book()

    @graded(term=RULE)
    def short(completion: str) -> float:
        """Longer is worse, and a third of all completions cannot be graded."""
        if not book.trainer.model.training:  # an evaluation, which must not be over before it is scraped
            live.wait_for("akka_optimize_training_job_steps_paused == 1")
        if len(completion) % 3 == 0:
            raise GraderFailure("ungradable")
        return 1 / (1 + len(completion.split()))

    with ExitStack() as ends:
        server = ends.enter_context(judge_server())
        live.scrape("dcgm", [ends.enter_context(serving(Dcgm)).removeprefix("http://")])
        ends.enter_context(environment(live.variables()))
        judge = Judge("judge-4b", base_url=server.url, prompt="Rate this. {completion}", api_key="sk-none")
        gpu = FakeGpu(uuid=HEALTHY_GPU)
        ours = AkkaTelemetryCallback(
            run_id="grpo", project="triage", gpus=fake_gpus(FakeNvml(gpu), interval_s=1), peak_flops=1e12
        )
        held = Held(ours, live, "grpo", names.RL_STEP_COUNT, steps)
        trainer = online(
            "GRPO",
            model,
            [ours, held],
            book=book,
            rewards={short: 0.5, judge: 0.5, penalty: 0.1},
            max_steps=steps,
            beta=0.02,
            eval_strategy="steps",
            eval_steps=2,
            per_device_eval_batch_size=4,
            save_strategy="steps",
            save_steps=1,
        )
        trainer.train()
    assert held.recording is not None
    return held.recording


class XidIn(TrainerCallback):
    """The GPU reports a fault of the hardware while a step is under way."""

    def __init__(self, nvml: FakeNvml, step: int) -> None:
        self._nvml, self._step = nvml, step

    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if state.global_step + 1 == self._step:
            self._nvml.xid(SICK_XID)


def supervised(live: Live, model: str, steps: int = 4) -> Recording:
    """SFT that goes wrong: a loss that is not a number, and an old GPU that is hot and has faults."""
    gpu = FakeGpu(SICK_GPU, throttle_bits=SICK_THROTTLE, celsius=90)
    gpu.fields = {"energy_mj": 0, "pages_corrected": 2, "pages_uncorrected": 1, "pages_pending": 1}
    nvml = FakeNvml(gpu)
    ours = AkkaTelemetryCallback(run_id="sft", project="commits", gpus=fake_gpus(nvml, interval_s=1), peak_flops=1e12)

    class Broken(trl.SFTTrainer):
        """The loss of step 2 is not a number, and its gradient stays what it is."""

        def compute_loss(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().compute_loss(*args, **kwargs)
            if not self.model.training:
                live.wait_for(f'akka_optimize_training_job_steps_paused{{{RUN_ID}="sft"}} == 1')
            elif self.state.global_step + 1 == 2:
                loss.data.fill_(float("nan"))
            return loss

    with environment(live.variables()):
        held = Held(ours, live, "sft", names.SFT_STEP_COUNT, steps)
        trainer = sft(
            model,
            [ours, held, XidIn(nvml, step=2)],
            trainer_class=Broken,
            max_steps=steps,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="steps",
            save_steps=1,
        )
        trainer.train()
    assert held.recording is not None
    return held.recording


def service(live: Live) -> Recording:
    """Two instances of a trainer service on one state: a pool with a claim that waits, and runs that end."""
    began_s = time.time()
    state = ServiceState(
        pools=[Pool(accelerator="nvidia-h100-80gb", declared=8, observed=7)],
        claims=[
            Claim(accelerator="nvidia-h100-80gb", project="triage", devices=4, state=ClaimState.GRANTED),
            Claim(accelerator="nvidia-h100-80gb", project="commits", devices=6, state=ClaimState.QUEUED),
        ],
        quotas={"triage": 8, "commits": 6},
        runs={("triage", RunPhase.TRAINING): 1, ("commits", RunPhase.AWAITING_DEVICES): 1},
        pipelines={"triage": 1},
    )
    with ExitStack() as ends:
        instances = []
        for pod in ("pod-1", "pod-2"):
            with environment(live.variables()):
                instances.append(ends.enter_context(ServiceTelemetry(lambda: state, instance=pod)))
        live.wait_for("count(akka_optimize_training_pool_devices_declared) == 2")
        for round_ in (1, 2):  # a rate is of what came between two scrapes
            _work(instances[0])
            live.wait_for(f"sum(akka_optimize_training_run_failures_total) == {round_}")
        for instance in instances:
            assert instance.flush(30)
        return live.record(began_s)


def _work(telemetry: ServiceTelemetry) -> None:
    """A run that completes and one that fails, a stage of a pipeline, an operation and the time of devices."""
    run = telemetry.begin_run("triage", RunPhase.SUBMITTING, at_s=1000.0)
    run = telemetry.enter_phase(run, RunPhase.TRAINING, at_s=1010.0)
    telemetry.enter_phase(run, RunPhase.COMPLETED, at_s=1100.0)
    run = telemetry.begin_run("commits", RunPhase.SUBMITTING, at_s=1000.0)
    telemetry.enter_phase(run, RunPhase.FAILED, at_s=1030.0)
    telemetry.gpu_time("triage", 360.0, derived=True)
    telemetry.stage_ended("triage", StageType.TRAIN, StageOutcome.COMPLETED, 100.0)
    operation = Operation.PAUSE
    telemetry.operation(operation, OperationStage.ACCEPT, OperationOutcome.SUCCEEDED)
    telemetry.operation_ended(operation, OperationStage.ACCEPT, OperationOutcome.SUCCEEDED, accepted_s=time.time() - 5)
