"""What a judge is asked about a row."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from akka_otel_callbacks.common.graders.rows import Parameters, Row, text_of

Messages = Sequence[Any]
Prompt = str | Callable[..., "str | Messages"]
TWICE = "A brace that is meant as one is written twice"


def messages_for(prompt: Prompt, row: Row) -> Messages:
    """The messages of a chat.

    Args:
        prompt: a template with the row's parts in braces, or a function that takes them and returns a text or the
            messages themselves.
        row: the row's parts by name.

    Raises:
        ValueError: the template asks for what the row does not have.
        TypeError: the function returned anything else.
    """
    asked = _filled(prompt, row) if isinstance(prompt, str) else prompt(**Parameters(prompt).among(row))
    if not isinstance(asked, (str, list, tuple)):
        kind = type(asked).__name__
        raise TypeError(f"the judge's prompt function returned a {kind}; a text or a list of messages is expected")
    return [{"role": "user", "content": asked}] if isinstance(asked, str) else asked


def flaw_of(prompt: Any) -> str | None:
    """What is wrong with a prompt. None if nothing is. It is checked before there is any row that an error could
    quote."""
    if not isinstance(prompt, str):
        return None if callable(prompt) else f"a {type(prompt).__name__} is neither a text nor a function"
    try:
        prompt.format_map(defaultdict(str))
    except IndexError:  # of a part such as {completion[0]}, which a row may well have
        return None
    except (ValueError, AttributeError, TypeError) as error:
        return f"{error}. {TWICE}"
    return None


def _filled(template: str, row: Row) -> str:
    texts = {name: text_of(value) for name, value in row.items() if isinstance(name, str)}
    try:
        return template.format_map(texts)
    except KeyError as missing:
        raise ValueError(
            f"the judge's prompt asks for {missing}; a row has {', '.join(sorted(texts))}. {TWICE}"
        ) from None
