"""Writes down what a host logs. It is imported within the host, which has no pytest."""

from __future__ import annotations

import json
import os
from typing import Any

from transformers import TrainerCallback


class Rows(TrainerCallback):
    """Appends every log row, as the trainer hands it out, to the file that the variable names."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if state.is_world_process_zero:
            with open(os.environ["AKKA_TEST_HOST_LOG"], "a") as file:
                file.write(json.dumps({**logs, "step": state.global_step}, default=float) + "\n")


def letters(completions: list[Any], **kwargs: Any) -> list[float]:
    """More for longer completions, and less than nothing for short ones."""
    texts = [text if isinstance(text, str) else text[-1]["content"] for text in completions]
    return [min(len(text), 40) / 40 - 0.5 for text in texts]
