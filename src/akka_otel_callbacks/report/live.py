"""The page of a run that still trains, on loopback: it asks for what is new, and keeps its zoom."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from akka_otel_callbacks.report import html
from akka_otel_callbacks.report.history import History
from akka_otel_callbacks.report.page import page

HOST = "127.0.0.1"
DATA = "/page.json"
OVER = -1
"""The version of a page that will not be renewed any more."""
PATIENCE_S = 10.0
"""How long the end of a run waits for whoever looks at its page. Browsers slow down the pages that nobody looks at."""


class LivePage:
    """The page that is served. It is made when somebody asks, and made anew only when there is something new."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._runs: Sequence[History] = ()
        self._version = 0
        self._made: dict[str, Any] | None = None
        self._asked = 0.0
        self.all_told = threading.Event()
        """Set when somebody got the last version."""

    def show(self, runs: Sequence[History], *, over: bool = False) -> None:
        """Has it show these runs from now on.

        Args:
            over: whether nothing more will come.
        """
        with self._lock:
            self._runs, self._made = runs, None
            self._version = OVER if over else self._version + 1

    def newer_than(self, version: str) -> dict[str, Any] | None:
        """The page as data. None if the version that the reader has is still the newest."""
        with self._lock:
            self._asked = time.monotonic()
            if version == str(self._version):
                return None
            if self._made is None:
                self._made = page(self._runs, time.time_ns(), version=self._version)
            return self._made

    def got(self, made: dict[str, Any]) -> None:
        """A reader has got this page whole. Before, the server must not end."""
        if made["version"] == OVER:
            self.all_told.set()

    def wait_for_readers(self) -> None:
        """Waits until a reader that asked lately has the last version."""
        if time.monotonic() - self._asked < PATIENCE_S:
            self.all_told.wait(PATIENCE_S)


@contextmanager
def served(live: LivePage, port: int = 0) -> Iterator[str]:
    """Serves it on loopback, and yields its address.

    Args:
        port: 0 for a free one.

    Raises:
        OSError: the port is taken.
    """

    class Handler(_Handler):
        page = live

    server = ThreadingHTTPServer((HOST, port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, name="akka-otel-page", daemon=True)
    thread.start()
    try:
        yield f"http://{HOST}:{server.server_port}/"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    page: LivePage

    def do_GET(self) -> None:
        """The page, or its data where they are newer than the version behind the question mark."""
        path, _, version = self.path.partition("?")
        if not self._is_for_us() or path not in ("/", DATA):
            self._answer(HTTPStatus.NOT_FOUND)
            return
        made = self.page.newer_than(version if path == DATA else "")
        if made is None:
            self._answer(HTTPStatus.NO_CONTENT)
            return
        if path == "/":
            self._answer(HTTPStatus.OK, html.written(made), "text/html")
        else:
            self._answer(HTTPStatus.OK, json.dumps(made, separators=(",", ":")), "application/json")
        self.page.got(made)

    def _is_for_us(self) -> bool:
        """Not for a site whose name leads to this machine, which would let its pages read ours."""
        name = self.headers.get("Host", "").rpartition(":")[0]
        return name in (HOST, "localhost")

    def _answer(self, status: HTTPStatus, text: str = "", kind: str = "text/plain") -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Says nothing: the terminal is the user's."""
