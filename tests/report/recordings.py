"""Files of runs that never were: the package's own recorder, producer and file exporter write them, at times and with
figures that a test chooses."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from akka_otel_callbacks.common.export.files import MetricFile
from akka_otel_callbacks.common.export.producer import Producer, Run
from akka_otel_callbacks.common.recording.observed import Observed
from akka_otel_callbacks.common.recording.steps import Steps
from akka_otel_callbacks.common.run.identity import identify
from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from akka_otel_callbacks.common.vocabulary.points import Point
from akka_otel_callbacks.common.vocabulary.step import RLStep, SFTStep, Step
from akka_otel_callbacks.reading import Reader, files
from akka_otel_callbacks.report.history import History, histories

BEGIN_NS = 1_790_000_000 * 10**9
GPU = {"hw.id": "GPU-00000000-0000-0000-0000-0000000000a1", "hw.name": "NVIDIA H100 80GB HBM3"}


@dataclass
class Recording:
    """One attempt of a training that writes its figures.

    Attributes:
        seconds: since the attempt began.
        observed: figures of GPUs and the like, read at each export.
    """

    kind: type[Step]
    file: MetricFile
    producer: Producer
    steps: Steps
    begin_ns: int
    seconds: float = 0.0
    observed: dict[Metric, list[Point]] = field(default_factory=dict)

    @property
    def now_ns(self) -> int:
        return self.begin_ns + int(self.seconds * 1e9)

    def step(self, step: Step, seconds: float = 1.0) -> None:
        """A step that took so long, or an amendment."""
        self.seconds += seconds
        self.steps.recorder.reported_ns = self.now_ns
        self.steps.recorder.record(step)

    def export(self, after_s: float = 0.001) -> None:
        self.seconds += after_s
        data = self.producer.collect()
        assert data is not None
        self.file.export(data)
        self.producer.sent()


@contextmanager
def recording(
    folder: Path,
    kind: type[Step] = RLStep,
    *,
    run_id: str = "run-1",
    attempt: int = 1,
    after_s: float = 0.0,
    **settings: str,
) -> Iterator[Recording]:
    """Writes `metrics.jsonl` of one attempt, which began so long after the first one."""
    identity = identify({}, engine={}, run_id=run_id)
    resource = identity.resource().merge(type(identity.resource())({names.ATTR_RUN_ATTEMPT.name: attempt, **settings}))
    steps, observed = Steps(kind), Observed()
    begin = BEGIN_NS + int(after_s * 1e9)
    producer = Producer(Run(resource, begin, observed, steps), patience_s=0)
    made = Recording(kind, MetricFile(folder / "metrics.jsonl"), producer, steps, begin)
    steps.known_until_ns = lambda _: steps.recorder.next_ns(made.now_ns)  # type: ignore[method-assign]
    for metric in (*names.METRICS,):
        observed.add(metric, partial(lambda metric: made.observed.get(metric, []), metric))
    yield made
    made.file.shutdown()


def rl_step(number: int, steps: int, **figures: object) -> RLStep:
    """A step of a healthy run, which learns."""
    part, chance = number / steps, random.Random(number)
    rewards = [min(max(chance.gauss(0.2 + 0.5 * part, 0.2), 0.0), 1.0) for _ in range(8)]
    mean = sum(rewards) / len(rewards)
    healthy = {
        "number": number,
        "duration_s": 1.0,
        "timing_s": {"gen": 0.6, "reward": 0.1, "update_actor": 0.3},
        "reward": mean,
        "reward_std": 0.2,
        "reward_min": min(rewards),
        "reward_max": 1.0,
        "reward_term": {"accuracy": mean * 0.8, "format": mean * 0.2, "total": mean},
        "rollout_reward": {"total": rewards},
        "reward_zero_ratio": 0.02,
        "frac_reward_zero_std": 0.1,
        "completion_length": 200 + 20 * math.sin(number),
        "completion_length_max": 512,
        "completion_length_min": 12,
        "completion_clipped_ratio": 0.05,
        "loss": chance.gauss(0, 0.02),
        "grad_norm": 0.4 + chance.random() / 10,
        "learning_rate": 1e-6,
        "entropy": 0.9 - 0.4 * part,
        "kl": 0.01 * part,
        "clip_ratio": 0.002,
        "clip_ratio_high": 0.001,
        "clip_ratio_low": 0.001,
        "tokens": 8000,
        "throughput": 8000.0,
        "mfu": 0.31,
        "grader_duration": {"accuracy": [0.002] * 8},
    }
    return RLStep(**(healthy | figures))  # type: ignore[arg-type]


def sft_step(number: int, steps: int, **figures: object) -> SFTStep:
    """The same of a supervised run."""
    healthy = {
        "number": number,
        "duration_s": 0.5,
        "timing_s": {"input": 0.01, "forward_backward": 0.4, "optimizer": 0.05, "step": 0.45},
        "loss": 3 - 2 * number / steps,
        "grad_norm": 1.0,
        "learning_rate": 1e-4,
        "token_accuracy": 0.3 + 0.4 * number / steps,
        "tokens": 4000,
        "padding": 0.1,
        "throughput": 8000.0,
        "mfu": 0.4,
    }
    return SFTStep(**(healthy | figures))  # type: ignore[arg-type]


def record(
    folder: Path,
    steps: int = 60,
    make: Callable[..., Step] = rl_step,
    figures: Callable[[int], dict[str, object]] = lambda number: {},
    *,
    every: int = 10,
    **settings: str,
) -> Path:
    """Writes a whole run.

    Args:
        figures: of a step, in place of the healthy ones.
        every: how many steps an export has.
    """
    with recording(folder, SFTStep if make is sft_step else RLStep, **settings) as made:
        for number in range(1, steps + 1):
            made.step(make(number, steps, **figures(number)))
            if number % every == 0 or number == steps:
                made.export()
    return folder


def history(folder: Path) -> History:
    """The newest run in a folder."""
    return histories(Reader(files(folder)).read())[-1]
