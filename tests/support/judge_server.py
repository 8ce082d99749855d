"""A judge behind a real HTTP server on loopback, which answers as it should or in any of the ways that judges fail."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import uvicorn

Send = Callable[[dict[str, Any]], Awaitable[None]]


@dataclass
class Asked:
    """One request, and the tokens that the reply to it reported."""

    body: dict[str, Any]
    key: str
    input_tokens: int = 0
    output_tokens: int = 0

    @property
    def text(self) -> str:
        return "\n".join(message["content"] for message in self.body["messages"])


@dataclass
class JudgeServer:
    """`behave` is how it answers: one name for all requests, or for each the name that a function gives."""

    url: str = ""
    behave: str | Callable[[Asked], str] = "score"
    script: Any = None
    """The body of the reply that `scripted` gives."""
    asked: list[Asked] = field(default_factory=list)
    most_at_once: int = 0
    _now: int = 0

    async def __call__(self, scope: dict[str, Any], receive: Callable[[], Awaitable[Any]], send: Send) -> None:
        if scope["type"] != "http":
            raise RuntimeError("no lifespan")
        body, more = b"", True
        while more:
            message = await receive()
            body, more = body + message.get("body", b""), message.get("more_body", False)
        headers = dict(scope["headers"])
        asked = Asked(json.loads(body), headers.get(b"authorization", b"").decode())
        self.asked.append(asked)
        self._now += 1
        self.most_at_once = max(self.most_at_once, self._now)
        try:
            if self.behave == "scripted":
                await reply(send, self.script)
                return
            await BEHAVIOURS[self.behave if isinstance(self.behave, str) else self.behave(asked)](asked, send)
        finally:
            self._now -= 1

    def tokens(self, kind: str) -> int:
        """All that the replies reported: `input` or `output`."""
        return sum(getattr(asked, f"{kind}_tokens") for asked in self.asked)


def score_of(text: str) -> float:
    """What the judge thinks of a prompt: it depends on the text and on nothing else."""
    return sum(text.encode()) % 101 / 100


def completion(asked: Asked, content: Any, finish: str = "stop", **message: Any) -> dict[str, Any]:
    asked.input_tokens, asked.output_tokens = len(asked.text), len(str(content))
    return {
        "id": "c",
        "object": "chat.completion",
        "created": 1,
        "model": asked.body["model"],
        "choices": [
            {
                "index": 0,
                "finish_reason": finish,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {
            "prompt_tokens": asked.input_tokens,
            "completion_tokens": asked.output_tokens,
            "total_tokens": asked.input_tokens + asked.output_tokens,
        },
    }


async def reply(send: Send, body: Any, status: int = 200, kind: str = "application/json", **headers: str) -> None:
    content = body if isinstance(body, bytes) else (body if isinstance(body, str) else json.dumps(body)).encode()
    given = [(b"content-type", kind.encode()), *((name.encode(), value.encode()) for name, value in headers.items())]
    await send({"type": "http.response.start", "status": status, "headers": given})
    await send({"type": "http.response.body", "body": content})


async def _score(asked: Asked, send: Send) -> None:
    await reply(send, completion(asked, json.dumps({"score": score_of(asked.text)})))


async def _slow(asked: Asked, send: Send) -> None:
    await asyncio.sleep(0.05)
    await _score(asked, send)


async def _hang(asked: Asked, send: Send) -> None:
    await asyncio.sleep(60)


async def _trickle(asked: Asked, send: Send) -> None:
    """Never a pause that is long enough for a timeout of the transport."""
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    for _ in range(600):
        await send({"type": "http.response.body", "body": b" ", "more_body": True})
        await asyncio.sleep(0.05)


async def _close(asked: Asked, send: Send) -> None:
    """Announces more than it sends. uvicorn closes the connection."""
    head = [(b"content-type", b"application/json"), (b"content-length", b"1000")]
    await send({"type": "http.response.start", "status": 200, "headers": head})
    await send({"type": "http.response.body", "body": b'{"choices": [', "more_body": True})
    raise ConnectionAbortedError("in the middle of a reply")


def _said(content: Any, finish: str = "stop", **message: Any) -> Callable[[Asked, Send], Awaitable[None]]:
    async def behave(asked: Asked, send: Send) -> None:
        await reply(send, completion(asked, content, finish, **message))

    return behave


def _sent(body: Any, status: int = 200, kind: str = "application/json") -> Callable[[Asked, Send], Awaitable[None]]:
    async def behave(asked: Asked, send: Send) -> None:
        await reply(send, body(asked) if callable(body) else body, status, kind)

    return behave


def _without_usage(asked: Asked) -> dict[str, Any]:
    body = completion(asked, "0.5")
    asked.input_tokens = asked.output_tokens = 0
    del body["usage"]
    return body


def _with_odd_usage(asked: Asked) -> dict[str, Any]:
    body = completion(asked, "0.5")
    asked.input_tokens = asked.output_tokens = 0
    return {**body, "usage": {"prompt_tokens": "many", "completion_tokens": -3}}


CALL = [{"id": "t", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
BEHAVIOURS: dict[str, Callable[[Asked, Send], Awaitable[None]]] = {
    "score": _score,
    "slow": _slow,
    "hang": _hang,
    "trickle": _trickle,
    "close": _close,
    "html": _sent("<html>Bad gateway</html>", kind="text/html"),
    "html as json": _sent("<html>Bad gateway</html>"),
    "no choices": _sent({"id": "c", "object": "chat.completion", "choices": []}),
    "null": _sent("null"),
    "list": _sent([1, 2]),
    "no message": _sent({"choices": [{"index": 0}]}),
    "error object": _sent({"error": {"message": "overloaded", "code": 500}}),
    "megabyte": _said("a" * 2**20),
    "megabyte of nothing": _sent(" " * 2**20),
    "deep": _said("[" * 100_000),
    "401": _sent({"error": {"message": "Incorrect API key provided: sk-judge-secret"}}, 401),
    "403": _sent({"error": {"message": "no"}}, 403),
    "404": _sent({"error": {"message": "no such model"}}, 404),
    "429": _sent({"error": {"message": "slow down"}}, 429),
    "500": _sent({"error": {"message": "oops"}}, 500),
    "503": _sent("busy", 503, "text/plain"),
    "tool call": _said(None, "tool_calls", tool_calls=CALL),
    "empty": _said(""),
    "blank": _said(" \n"),
    "filtered": _said("0.5", "content_filter"),
    "cut off": _said("0.5", "length"),
    "prose": _said("I would say it is rather good."),
    "nan": _said("NaN"),
    "infinite": _said("Infinity"),
    "too high": _said("1.5"),
    "negative": _said('{"score": -0.1}'),
    "text score": _said('{"score": "good"}'),
    "no usage": _sent(_without_usage),
    "odd usage": _sent(_with_odd_usage),
    "one": _said("1"),
    "fenced": _said('```json\n{"score": 0.25}\n```'),
}


@contextmanager
def judge_server(behave: str | Callable[[Asked], str] = "score") -> Iterator[JudgeServer]:
    """A server for the time of the block. `url` is the base of its OpenAI-compatible endpoints."""
    app = JudgeServer(behave=behave)
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    app.url = f"http://127.0.0.1:{listening.getsockname()[1]}/v1"
    config = uvicorn.Config(app, lifespan="off", log_level="critical", timeout_graceful_shutdown=0)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    try:
        yield app
    finally:
        server.should_exit = server.force_exit = True
        thread.join(10)
        listening.close()


@contextmanager
def closed_port() -> Iterator[str]:
    """The base of an endpoint that refuses every connection."""
    with socket.socket() as bound:  # bound, so that nobody else gets it, and never listening
        bound.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{bound.getsockname()[1]}/v1"
