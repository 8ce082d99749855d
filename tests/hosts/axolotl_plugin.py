"""What the test hands to Axolotl beside our plugin: a record of its log, and how a prompt becomes a row."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from axolotl.integrations.base import BasePlugin
from rows import Rows


class RowsPlugin(BasePlugin):
    def add_callbacks_pre_trainer(self, cfg: Any, model: Any) -> list[Rows]:
        return [Rows()]


def prompts(cfg: Any, *args: Any, **kwargs: Any) -> tuple[Callable[..., dict[str, Any]], dict[str, Any]]:
    return (lambda row, tokenizer=None: {"prompt": row["prompt"]}), {}
