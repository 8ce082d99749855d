"""How engines call a reward function, and how a function that scores a single row is called.

TRL hands over a batch: `prompts`, `completions`, `completion_ids`, and each column of the data set as a list. verl
hands over one row: `data_source`, `solution_str`, `ground_truth`, `extra_info`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

BATCH = "completions"
OF_A_ROW = {"prompts": "prompt", "completions": "completion", "environments": "environment"}
"""The name of a batch's column in a single row, where it differs."""
VERL_COMPLETION = "solution_str"
ROW_PARAMETERS = frozenset({"prompt", "completion", VERL_COMPLETION})
BY_POSITION = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
Row = Mapping[str, Any]


class Parameters:
    """What a function can be called with."""

    def __init__(self, function: Callable[..., Any]) -> None:
        found = inspect.signature(function).parameters
        self._names = found.keys()
        self._by_position = [name for name, each in found.items() if each.kind in BY_POSITION]
        self._takes_any = any(each.kind is inspect.Parameter.VAR_KEYWORD for each in found.values())
        self.are_of_a_row = not ROW_PARAMETERS.isdisjoint(self._names)
        """Whether the function scores a single row; TRL's own functions score a batch."""

    def by_name(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """The arguments of a call, as far as the function names them."""
        return {**dict(zip(self._by_position, args, strict=False)), **kwargs} if args else kwargs

    def among(self, row: Row) -> Row:
        """The parts of a row that the function takes."""
        return row if self._takes_any else {name: value for name, value in row.items() if name in self._names}


def is_batch(arguments: Mapping[str, Any]) -> bool:
    return isinstance(arguments.get(BATCH), (list, tuple))


def rows_of(batch: Mapping[str, Any]) -> list[Row]:
    """The rows of a batch. A value that is not a list of the batch's length, such as the trainer's state, is the same
    in each row."""
    count = len(batch[BATCH])
    columns = {name for name, value in batch.items() if isinstance(value, (list, tuple)) and len(value) == count}
    return [
        {OF_A_ROW.get(name, name): value[at] if name in columns else value for name, value in batch.items()}
        for at in range(count)
    ]


def named(arguments: Mapping[str, Any]) -> Row:
    """A row whose completion goes by the same name on both engines."""
    if VERL_COMPLETION in arguments and "completion" not in arguments:
        return {**arguments, "completion": arguments[VERL_COMPLETION]}
    return arguments


def text_of(value: Any) -> str:
    """A prompt or a completion as text: of a conversation, what its turns say."""
    if isinstance(value, (list, tuple)):
        return "\n".join(map(text_of, value))
    if isinstance(value, Mapping):  # a turn of a conversation, or a part of what it says
        return text_of(value.get("content") or value.get("text") or "")
    return "" if value is None else str(value)
