"""An OpenAI-compatible chat endpoint, asked from any event loop."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from akka_otel_callbacks.common.export.redaction import redact_url
from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.loops import PerLoop
from akka_otel_callbacks.common.graders.prompt import Messages
from akka_otel_callbacks.common.graders.reply import UNAVAILABLE
from akka_otel_callbacks.common.vocabulary import names

if TYPE_CHECKING:
    from openai import AsyncOpenAI

TIMEOUT = names.RlGraderFailureCause.TIMEOUT
REFUSED = (401, 403)
KEY, BASE_URL = "OPENAI_API_KEY", "OPENAI_BASE_URL"
NO_KEY = "none"
"""A server of one's own may ask for no key; the client insists on one."""
OURS = ("self", "model", "messages", "stream", "stream_options", "n")
"""Arguments that a judge sets itself, or that would give more or less than one reply."""


class Refused(Exception):
    """The endpoint does not take the credentials."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class _Client(NamedTuple):
    """The client of one event loop, and its slots for calls."""

    openai: AsyncOpenAI
    slots: asyncio.Semaphore


@dataclass(frozen=True)
class Endpoint:
    """Where and how a model is asked. A copy of it, pickled or not, has clients of its own.

    Raises:
        ImportError: the `openai` client is not installed.
        ValueError: a setting that makes no sense; the message says which.
    """

    model: str
    base_url: str | None
    api_key: str | None = field(repr=False)
    timeout_s: float
    """The time for one call, with its retries."""
    retries: int
    concurrency: int
    """The most calls at a time in one event loop."""
    options: Mapping[str, Any] = field(repr=False)
    """Further arguments of each request."""

    def __post_init__(self) -> None:
        known = inspect.signature(_openai().resources.chat.AsyncCompletions.create).parameters
        url = self._url()
        checks = {
            f"timeout_s={self.timeout_s} must be more than 0": self.timeout_s > 0,
            f"retries={self.retries} must not be negative": self.retries >= 0,
            f"concurrency={self.concurrency} must be at least 1": self.concurrency >= 1,
            f"base_url={redact_url(url or '')!r} must begin with http:// or https://": is_http(url),
            f"no key: give api_key or set {KEY}": self._key() is not None,
        }
        wrong = [rule for rule, holds in checks.items() if not holds]
        wrong += [f"a judge sets {name!r} itself" for name in self.options if name in OURS]
        wrong += [f"a request has no {name!r}; extra_body may" for name in self.options if name not in known]
        if wrong:
            raise ValueError(f"the judge {self.model}: {'; '.join(wrong)}")
        object.__setattr__(self, "_clients", PerLoop(self._client))

    def __reduce__(self) -> tuple[type[Endpoint], tuple[Any, ...]]:
        given = self.model, self.base_url, self.api_key, self.timeout_s, self.retries, self.concurrency, self.options
        return Endpoint, given

    def __str__(self) -> str:
        return f"the judge {self.model} at {redact_url(self._url() or 'api.openai.com')}"

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Waits until another call is allowed."""
        async with self._clients.get().slots:  # type: ignore[attr-defined]
            yield

    async def ask(self, messages: Messages) -> Any:
        """Asks the endpoint, and returns its answer. The client's own exceptions end here: they hold prompts, replies
        and keys.

        Raises:
            GraderFailure: `timeout` or `unavailable`.
            Refused: the endpoint does not take the credentials.
        """
        create: Any = self._clients.get().openai.chat.completions.create  # type: ignore[attr-defined]
        try:
            return await asyncio.wait_for(create(model=self.model, messages=messages, **self.options), self.timeout_s)
        except (asyncio.TimeoutError, TimeoutError):
            cause, status = TIMEOUT, None
        except Exception as error:  # noqa: BLE001 - the client passes on what a server, a proxy or the network does
            is_late = isinstance(error, _openai().APITimeoutError)
            cause, status = TIMEOUT if is_late else UNAVAILABLE, getattr(error, "status_code", None)
        if status in REFUSED:
            raise Refused(status)
        raise GraderFailure(cause)

    def _client(self) -> _Client:
        openai = _openai().AsyncOpenAI(
            base_url=self.base_url, api_key=self._key(), timeout=self.timeout_s, max_retries=self.retries
        )
        return _Client(openai, asyncio.Semaphore(self.concurrency))

    def _key(self) -> str | None:
        return self.api_key or os.environ.get(KEY) or (NO_KEY if self._url() else None)

    def _url(self) -> str | None:
        return self.base_url or os.environ.get(BASE_URL) or None


def is_http(url: str | None) -> bool:
    """Whether a URL can be asked; the client's own is."""
    return url is None or url.lower().startswith(("http://", "https://"))


def _openai() -> Any:
    try:
        import openai
    except ImportError as error:
        raise ImportError("a Judge needs the openai client: pip install 'akka-otel-callbacks[judge]'") from error
    return openai
