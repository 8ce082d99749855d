"""Reads a chat completion, whatever a server sent under that name."""

from __future__ import annotations

from typing import Any, NamedTuple

from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.verdict import UNREADABLE
from akka_otel_callbacks.common.vocabulary import names

UNAVAILABLE = names.RlGraderFailureCause.UNAVAILABLE
CUT_OR_HIDDEN = ("length", "content_filter")
"""Ends of a reply that is not all that the judge had to say."""


class Usage(NamedTuple):
    """Tokens, as the server counted them. None where it did not say."""

    input_tokens: int | None
    output_tokens: int | None


def usage_of(reply: Any) -> Usage:
    usage = getattr(reply, "usage", None)
    return Usage(_count(usage, "prompt_tokens"), _count(usage, "completion_tokens"))


def text_of_reply(reply: Any) -> str:
    """What the judge said.

    Raises:
        GraderFailure: `unavailable` for what is no chat completion, `unreadable` for one that says nothing or not all
            of it.
    """
    choices = getattr(reply, "choices", None)
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = getattr(choice, "message", None)
    if message is None:
        raise GraderFailure(UNAVAILABLE)
    text = getattr(message, "content", None)
    if getattr(choice, "finish_reason", None) in CUT_OR_HIDDEN or not isinstance(text, str) or not text.strip():
        raise GraderFailure(UNREADABLE)
    return text


def _count(usage: Any, name: str) -> int | None:
    count = getattr(usage, name, None)
    return count if isinstance(count, int) and not isinstance(count, bool) and count >= 0 else None
