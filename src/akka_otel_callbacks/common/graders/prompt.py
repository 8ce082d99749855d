"""What a judge is asked about a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from akka_otel_callbacks.common.graders.rows import Parameters, Row, text_of

Messages = Sequence[Any]
Prompt = str | Callable[..., "str | Messages"]


def messages_for(prompt: Prompt, row: Row) -> Messages:
    """The messages of a chat.

    Args:
        prompt: a template with the row's parts in braces, or a function that takes them and returns a text or the
            messages themselves.
        row: the row's parts by name.

    Raises:
        ValueError: the template asks for what the row does not have.
    """
    asked = _filled(prompt, row) if isinstance(prompt, str) else prompt(**Parameters(prompt).among(row))
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked


def _filled(template: str, row: Row) -> str:
    texts = {name: text_of(value) for name, value in row.items() if isinstance(name, str)}
    try:
        return template.format_map(texts)
    except KeyError as missing:
        raise ValueError(
            f"the judge's prompt asks for {missing}; a row has {', '.join(sorted(texts))}. A brace that is meant as "
            "one is written twice"
        ) from None
