"""verl's demo: the CPU recipe of `examples/verl_cpu`, as a program of its own."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console

from akka_otel_callbacks.cli.output import stderr, stop

RECIPE = "verl_cpu"


def train_verl(engine: str, steps: int, console: Console) -> None:
    """Trains with verl on the CPU. Its output is shown only if it fails."""
    if importlib.util.find_spec(RECIPE) is None:
        raise stop(
            "verl's demo is a recipe that trains it without a GPU, in an environment without TRL. In the project's "
            "folder: pip install -c constraints/verl.txt . ./examples/verl_cpu",
            code=1,
        )
    from verl_cpu.train import train

    if "AKKA_OTEL_DIR" in os.environ:  # the recipe works in a folder of its own
        os.environ["AKKA_OTEL_DIR"] = os.path.abspath(os.path.expanduser(os.environ["AKKA_OTEL_DIR"]))
    with TemporaryDirectory() as work, open(Path(work) / "verl.log", "w+b") as said:
        with console.status(f"{engine} trains; it needs about a minute, most of it to start"):
            status = train("grpo", Path(work), steps=steps, loggers=("console", "akka_otel"), output=said)
        if status:
            said.seek(0)
            stderr().print(said.read().decode(errors="replace"))
            raise stop(f"verl ended with exit code {status}; its output is above.", code=1)
