"""A collector in a process of its own, so that what it costs is not counted as the logger's: it takes everything, keeps
nothing, and says how many bytes came."""

from __future__ import annotations

import gzip
import http.client
import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]


class Received(NamedTuple):
    """Of metrics so far: requests, bytes as they were sent, and bytes before compression."""

    requests: int
    sent: int
    encoded: int


class Sink:
    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"http://127.0.0.1:{port}"

    def received(self) -> Received:
        connection = http.client.HTTPConnection("127.0.0.1", self._port)
        connection.request("GET", "/received")
        return Received(*json.load(connection.getresponse()))


@contextmanager
def sink() -> Iterator[Sink]:
    process = subprocess.Popen(
        [sys.executable, "-m", "benchmarks.sink"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        yield Sink(int(process.stdout.readline()))
    finally:
        process.communicate()


def main() -> None:
    """Serves until its standard input ends."""
    received = [0, 0, 0]

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            plain = gzip.decompress(body) if self.headers.get("content-encoding") == "gzip" else body
            if self.path.endswith("/metrics"):
                received[:] = received[0] + 1, received[1] + len(body), received[2] + len(plain)
            self._answer(b"", "application/x-protobuf")

        def do_GET(self) -> None:
            self._answer(json.dumps(received).encode(), "application/json")

        def _answer(self, body: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("content-type", kind)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *args: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_port, flush=True)
    import threading

    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
