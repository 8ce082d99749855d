"""What the test hands to ms-swift beside our plugin: a record of its log, and the reward."""

from __future__ import annotations

from typing import Any

from rows import Rows, letters
from swift.callbacks import callbacks_map
from swift.rewards import ORM, orms


class Letters(ORM):
    def __call__(self, completions: list[str], **kwargs: Any) -> list[float]:
        return letters(completions)


orms["letters"] = Letters
callbacks_map["rows"] = lambda args, trainer: Rows()
