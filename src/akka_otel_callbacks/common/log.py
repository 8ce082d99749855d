"""The package's logger. Its lines reach a person even where the program configured no logging at all."""

from __future__ import annotations

import logging

logger = logging.getLogger("akka_otel_callbacks")


def show_to_people() -> None:
    """Sends the package's lines to stderr where no logging is configured; a configured program keeps its own way."""
    if logger.hasHandlers():
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter("akka-otel: %(message)s"))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False  # a root handler that the program installs later would print each line twice
