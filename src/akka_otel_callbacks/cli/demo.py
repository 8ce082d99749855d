"""`akka-otel demo`: a real training that is over in half a minute, and what it published."""

from __future__ import annotations

import importlib.util
import io
import logging
import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TextIO

from rich.console import Console
from rich.logging import RichHandler
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from akka_otel_callbacks.cli.output import stderr, stdout, stop
from akka_otel_callbacks.cli.report import FILE, write
from akka_otel_callbacks.cli.view import view
from akka_otel_callbacks.common.export.selection import select
from akka_otel_callbacks.common.export.targets.file import FileTarget
from akka_otel_callbacks.common.export.targets.target import Target
from akka_otel_callbacks.common.log import logger
from akka_otel_callbacks.reading import Reader, files
from akka_otel_callbacks.report import Report
from akka_otel_callbacks.report.history import histories

if TYPE_CHECKING:
    from transformers import TrainerCallback

Train = Callable[[str, int, Console], None]
QUIET = {
    "HF_HUB_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "CUDA_VISIBLE_DEVICES": "0",  # one device is plenty, and several would be one DataParallel
}
FOLLOWED = ("reward", "loss")
"""Keys of the engine's log. The progress bar shows the first one that a row has."""


def demo(engine: str, steps: int, directory: Path | None, train: Train | None = None) -> None:
    """Runs the training, and then shows its figures or says where they went."""
    train = train or train_trl
    console = stdout()
    _settle(os.environ, engine, directory)
    selection = select(os.environ, run_id=engine)
    started = time.monotonic()
    train(engine, steps, console)
    console.print(f"{steps} steps of {engine} took {time.monotonic() - started:.0f} s.\n")
    for target in selection.metrics:
        _say_where(target, console)
    if not selection.metrics:
        console.print(f"Nothing was exported: {selection.reason_none}.")


def _settle(environ: Any, engine: str, directory: Path | None) -> None:
    """Sets the environment: no hub, one device, and a folder of the demo's own if neither the caller nor the
    environment names one."""
    for name, value in QUIET.items():
        environ.setdefault(name, value)
    if directory is not None:
        environ["AKKA_OTEL_DIR"] = str(directory)
    elif not environ.get("AKKA_OTEL_DIR"):
        environ["AKKA_OTEL_DIR"] = str(Path("akka-otel") / f"demo-{engine}-{time.strftime('%Y%m%d-%H%M%S')}")


def train_trl(engine: str, steps: int, console: Console) -> None:
    """Trains with TRL in this process."""
    if importlib.util.find_spec("trl") is None:
        raise stop('The demo trains with TRL, which is not installed: pip install "akka-otel-callbacks[trl]"', code=1)
    noise = io.StringIO()
    try:
        with _progress(console, steps) as progress, TemporaryDirectory() as work, _out_of_sight(noise):
            from transformers import PrinterCallback

            from akka_otel_callbacks.demo.trainings import TRAININGS
            from akka_otel_callbacks.trl import AkkaTelemetryCallback

            trainer = TRAININGS[engine](steps, Path(work), [AkkaTelemetryCallback(), _watcher(progress)])
            trainer.remove_callback(PrinterCallback)
            trainer.train()
    except Exception:
        stderr().print(noise.getvalue())  # whatever the engine said may be the reason
        raise


@contextmanager
def _progress(console: Console, steps: int) -> Iterator[Progress]:
    """A progress bar. The lines of the telemetry appear above it."""
    columns = TextColumn("{task.description:<24}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    handler = RichHandler(logging.WARNING, console, show_time=False, show_path=False)
    logger.addHandler(handler)
    try:
        with Progress(*columns, console=console, redirect_stdout=False, redirect_stderr=False) as progress:
            progress.add_task("loading the engine", total=steps)
            yield progress
    finally:
        logger.removeHandler(handler)


@contextmanager
def _out_of_sight(noise: TextIO) -> Iterator[None]:
    """Hides the engine's own bars, warnings and log rows, which would bury the demo's output."""
    from akka_otel_callbacks.common.export import console

    console.kept = sys.stdout  # the figures that the user wants to see are no noise
    try:
        with redirect_stdout(noise), redirect_stderr(noise):
            yield
    finally:
        console.kept = None


def _watcher(progress: Progress) -> TrainerCallback:
    from transformers import TrainerCallback

    (task,) = progress.task_ids

    class Watcher(TrainerCallback):  # type: ignore[misc]
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            progress.reset(task, description="training")

        def on_step_end(self, *_: Any, **__: Any) -> None:
            progress.advance(task)

        def on_log(self, *_: Any, logs: Mapping[str, Any], **__: Any) -> None:
            followed = next((key for key in FOLLOWED if key in logs), None)
            if followed:
                progress.update(task, description=f"training: {followed} {logs[followed]:.3f}")

    return Watcher()


def _say_where(target: Target, console: Console) -> None:
    if not isinstance(target, FileTarget):
        console.print(f"The figures went to {target}, because {target.reason}.", soft_wrap=True)
        return
    if not target.path.exists():
        raise stop(f"Nothing was written to {target.path}; the warnings above say why.", code=1)
    *_, run = runs = Reader(files(target.path.parent)).read()
    console.print(view(run, console.width))
    console.print(f"The files lie in {target.path.parent}", soft_wrap=True)
    console.print(f"To look again: akka-otel show {shlex.quote(str(target.path.parent))}", soft_wrap=True)
    write(Report(histories(runs)[-1:]), target.path.parent / FILE)
