"""What one GRPO step's telemetry costs the training thread, beside other loggers.

`python -m benchmarks.step_cost` runs every logger in turn, a batch of steps each, in one process, and takes the same
steps without any logger as zero. A step has all its events, four micro-batches, 32 rollouts with three reward terms,
and a log row of 28 keys. Ours publishes all its figures of the step and both histograms; the others take the row's 28
scalars. Loggers that are not installed are left out and named.

Then what ours costs on the exporter's thread: the translation of a step, and one export.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import statistics
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

from transformers import TrainerCallback

from benchmarks import stand_in

BATCH = 50
SETTLE_S = 0.05
TARGET_STEP_US, TARGET_TRANSLATION_MS = 60.0, 3.0
TARGET_SHARE_OF_TENSORBOARD, TARGET_SHARE_OF_GAUGES = 1 / 10, 1 / 2
OURS, TENSORBOARD, GAUGES = "akka_otel_callbacks", "transformers TensorBoardCallback", "bare OpenTelemetry gauges"


class RowLogger(TrainerCallback):
    """A logger of another kind, as a callback that hands it each log row and the step."""

    def __init__(self, log: Callable[[dict[str, float], int], Any]) -> None:
        self._log = log

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._log(logs, state.global_step)


@contextmanager
def nothing(folder: Path) -> Iterator[None]:
    yield None


@contextmanager
def ours(folder: Path) -> Iterator[TrainerCallback]:
    from akka_otel_callbacks.trl import AkkaTelemetryCallback

    os.environ["AKKA_OTEL_DIR"] = str(folder / "akka-otel")
    callback = AkkaTelemetryCallback(peak_flops=1e12)
    yield callback
    callback._session.close()


@contextmanager
def tensorboard(folder: Path) -> Iterator[TrainerCallback]:
    from torch.utils.tensorboard import SummaryWriter
    from transformers.integrations import TensorBoardCallback

    with SummaryWriter(str(folder)) as writer:
        yield TensorBoardCallback(writer)


@contextmanager
def wandb(folder: Path) -> Iterator[TrainerCallback]:
    import wandb

    run = wandb.init(mode="offline", dir=str(folder), settings=wandb.Settings(silent=True, console="off"))
    yield RowLogger(lambda row, step: run.log({**row, "train/global_step": step}))
    run.finish()


@contextmanager
def trackio(folder: Path) -> Iterator[TrainerCallback]:
    os.environ["TRACKIO_DIR"] = str(folder)
    import trackio

    with redirect_stdout(sys.stderr):
        run = trackio.init(project="bench", embed=False)
    yield RowLogger(lambda row, step: run.log(row, step=step))
    with redirect_stdout(sys.stderr):
        run.finish()


@contextmanager
def mlflow(folder: Path) -> Iterator[TrainerCallback]:
    os.environ |= {"MLFLOW_ALLOW_FILE_STORE": "true", "MLFLOW_DISABLE_TELEMETRY": "true"}
    import mlflow

    mlflow.set_tracking_uri((folder / "mlruns").as_uri())
    with mlflow.start_run():
        yield RowLogger(lambda row, step: mlflow.log_metrics(row, step=step))


@contextmanager
def gauges(folder: Path) -> Iterator[TrainerCallback]:
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    provider = MeterProvider([InMemoryMetricReader()], shutdown_on_exit=False)
    by_key: dict[str, Any] = {}

    def record(row: dict[str, float], step: int) -> None:
        for key, value in row.items():
            if key not in by_key:
                by_key[key] = provider.get_meter("bench").create_gauge(key.replace("/", "."))
            by_key[key].set(value)

    yield RowLogger(record)


LOGGERS: dict[str, Callable[[Path], Any]] = {
    OURS: ours,
    GAUGES: gauges,
    TENSORBOARD: tensorboard,
    "wandb, offline": wandb,
    "trackio": trackio,
    "MLflow, file store": mlflow,
}


class Contender:
    """One logger with a trainer of its own, and the times of its steps."""

    def __init__(self, name: str, callback: TrainerCallback | None, folder: Path) -> None:
        self.name, self.trainer = name, stand_in.GRPOTrainer(folder)
        self.callbacks = [] if callback is None else [callback]
        self.microseconds: list[float] = []
        self.spent_s = 0.0
        for found in self.callbacks:
            if hasattr(found, "attach"):
                found.attach(self.trainer)
            if not isinstance(found, RowLogger) and name != TENSORBOARD:
                stand_in.begin(self.trainer, [found])

    def run(self, steps: int) -> None:
        begin = time.perf_counter()
        for _ in range(steps):
            start = time.perf_counter()
            stand_in.step(self.trainer, self.callbacks)
            self.microseconds.append((time.perf_counter() - start) * 1e6)
        self.spent_s += time.perf_counter() - begin

    def settle(self) -> None:
        """Lets the logger's own threads finish, so that they do not take the interpreter from the next one."""
        for callback in self.callbacks:
            if telemetry := getattr(callback, "_telemetry", None):
                telemetry.flush(10)
        time.sleep(SETTLE_S)


class Figures(NamedTuple):
    median_us: float
    p90_us: float


def measure(contenders: list[Contender], steps: int, seconds_each: float) -> dict[str, Figures]:
    """Takes turns, so that what the machine does meanwhile meets all of them, and the first contender as zero."""
    for contender in contenders:
        contender.run(5)
        contender.microseconds.clear()
        contender.spent_s = 0.0
    gc.collect()
    gc.disable()
    try:
        for _ in range(steps // BATCH):
            for contender in contenders:
                if contender.spent_s < seconds_each:
                    contender.run(BATCH if contender.spent_s / max(1, len(contender.microseconds)) < 1e-3 else 2)
                contender.settle()
    finally:
        gc.enable()
    zero = statistics.median(contenders[0].microseconds)
    return {
        contender.name: Figures(
            statistics.median(contender.microseconds) - zero,
            statistics.quantiles(contender.microseconds, n=10)[-1] - zero,
        )
        for contender in contenders[1:]
    }


class ExporterCost(NamedTuple):
    translation_ms: float
    collect_ms: float
    line_bytes: int


def exporter_cost(folder: Path, rounds: int = 20, steps: int = 20) -> ExporterCost:
    """On a provider that is collected here, so that nothing runs beside it."""
    from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    from akka_otel_callbacks.common.instruments import views
    from akka_otel_callbacks.trl import AkkaTelemetryCallback

    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], views=views(), shutdown_on_exit=False)
    callback = AkkaTelemetryCallback(peak_flops=1e12, meter_provider=provider)
    contender = Contender(OURS, callback, folder)
    empty, full = [], []
    for _ in range(rounds):
        contender.run(steps)
        full.append(_timed_ms(reader.get_metrics_data))
        empty.append(_timed_ms(lambda: encode_metrics(reader.get_metrics_data()).SerializeToString()))
        full[-1] -= _timed_ms(reader.get_metrics_data)
    line = sum(path.stat().st_size for path in folder.parent.rglob("metrics.jsonl"))
    lines = sum(path.read_bytes().count(b"\n") for path in folder.parent.rglob("metrics.jsonl"))
    callback._session.close()
    return ExporterCost(statistics.median(full) / steps, statistics.median(empty), line // max(1, lines))


def _timed_ms(call: Callable[[], Any]) -> float:
    """Of this thread's own time: that is what it may take from the training."""
    start = time.thread_time()
    call()
    return (time.thread_time() - start) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=2000, help="steps of each logger")
    parser.add_argument("--seconds", type=float, default=5.0, help="time of each logger, at most")
    options = parser.parse_args()
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")

    with ExitStack() as stack:
        root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        contenders = [Contender("no logger", None, root / "nothing")]
        for number, (name, logger) in enumerate(LOGGERS.items()):
            folder = root / str(number)
            folder.mkdir()
            try:
                callback = stack.enter_context(logger(folder))
            except ImportError as error:
                if name == OURS:
                    raise
                print(f"left out: {name} ({error})")
                continue
            contenders.append(Contender(name, callback, folder))
        figures = measure(contenders, options.steps, options.seconds)
        exporter = exporter_cost(root / "0")
    show(figures, exporter)


def show(figures: dict[str, Figures], exporter: ExporterCost) -> None:
    mine = figures[OURS]
    print(
        f"\nTraining thread, one GRPO step ({stand_in.LOG_KEYS} log keys, {stand_in.ROLLOUTS} rollouts, "
        f"{len(stand_in.TERMS)} reward terms), Python {sys.version.split()[0]}\n"
    )
    print(f"{'':34}{'median µs':>12}{'90 % µs':>12}{'of ours':>10}")
    for name, (median, p90) in figures.items():
        print(f"{name:34}{median:12.1f}{p90:12.1f}{median / mine.median_us:9.1f}x")
    print("\nExporter's thread\n")
    print(f"{'translation of a step':34}{exporter.translation_ms:12.2f} ms")
    print(f"{'collecting and encoding an export':34}{exporter.collect_ms:12.2f} ms")
    print(f"{'one line of the embedded file':34}{exporter.line_bytes / 1000:12.1f} kB\n")
    _target("training thread, µs", mine.median_us, TARGET_STEP_US)
    _target("translation, ms", exporter.translation_ms, TARGET_TRANSLATION_MS)
    for other, share in ((TENSORBOARD, TARGET_SHARE_OF_TENSORBOARD), (GAUGES, TARGET_SHARE_OF_GAUGES)):
        if other in figures:
            _target(f"share of {other}", mine.median_us / figures[other].median_us, share)


def _target(name: str, value: float, limit: float) -> None:
    print(f"{'reached' if value <= limit else 'MISSED '}  {name}: {value:.3g}, target at most {limit:.3g}")


if __name__ == "__main__":
    main()
