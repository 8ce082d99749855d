"""Draws what `akka-otel show` prints, as an SVG for the README: `python -m tools.picture FOLDER IMAGE`."""

from __future__ import annotations

import os
import subprocess
import sys

from rich.console import Console
from rich.text import Text

COLUMNS = 84


def draw(folder: str, image: str) -> None:
    environ = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    shown = subprocess.run(
        [sys.executable, "-m", "akka_otel_callbacks", "show", folder],
        env=environ,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere)
        console.print(Text.from_ansi(shown.stdout.rstrip()))
    console.save_svg(image, title="akka-otel demo")


if __name__ == "__main__":
    draw(*sys.argv[1:])
