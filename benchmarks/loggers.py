"""The loggers that `step_cost` measures, each as a callback of a trainer."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from benchmarks.sink import sink

OURS, OURS_OTLP = "akka_otel_callbacks, files", "akka_otel_callbacks, OTLP"
TENSORBOARD, GAUGES = "transformers TensorBoardCallback", "bare OpenTelemetry gauges"


class RowLogger(TrainerCallback):
    """A logger of another kind, as a callback that hands it each log row and the step."""

    def __init__(self, log: Callable[[dict[str, float], int], Any]) -> None:
        self._log = log

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        self._log(logs, state.global_step)


@contextmanager
def ours(folder: Path) -> Iterator[TrainerCallback]:
    """As without any variable."""
    from akka_otel_callbacks.trl import AkkaTelemetryCallback

    os.environ["AKKA_OTEL_DIR"] = str(folder / "akka-otel")
    callback = AkkaTelemetryCallback(peak_flops=1e12)
    yield callback
    callback._session.close()


@contextmanager
def ours_otlp(folder: Path) -> Iterator[TrainerCallback]:
    with sink() as collector:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.url
        try:
            with ours(folder) as callback:
                yield callback
        finally:
            del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]


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
    OURS_OTLP: ours_otlp,
    GAUGES: gauges,
    TENSORBOARD: tensorboard,
    "wandb, offline": wandb,
    "trackio": trackio,
    "MLflow, file store": mlflow,
}
