"""The processes of torchrun agree on an attempt through a store as torch's are."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from akka_otel_callbacks.common.run import torchrun
from akka_otel_callbacks.common.run.attempt import Attempt


class Store:
    """As torch's: `get` before the key is there waits inside a lock that the trainer needs, too."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def set(self, key: str, value: str) -> None:
        self.kept[key] = value.encode()

    def check(self, keys: list[str]) -> bool:
        return all(key in self.kept for key in keys)

    def get(self, key: str) -> bytes:
        assert key in self.kept, "it would hold the trainer"
        return self.kept[key]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Store:
    made = Store()
    monkeypatch.setattr(torchrun, "_store", lambda: made)
    monkeypatch.setattr(torchrun, "POLL_S", 0.01)
    return made


def test_a_rank_gets_what_the_first_one_tells_later(store: Store) -> None:
    told: list[Any] = []
    waiting = threading.Thread(target=lambda: told.append(torchrun.shared()))
    waiting.start()
    torchrun.share(Attempt("run", 3))
    waiting.join(20)
    assert told == [Attempt("run", 3)]


def test_each_training_has_a_key_of_its_own(store: Store) -> None:
    torchrun.share(Attempt("run", 1), "first")
    torchrun.share(Attempt("run", 2), "second")
    assert [torchrun.shared(key) for key in ("first", "second")] == [Attempt("run", 1), Attempt("run", 2)]


def test_the_job_s_span_comes_with_the_attempt(store: Store) -> None:
    trace = {"TRACEPARENT": "00-a-b-01", "TRACESTATE": "vendor=1"}
    torchrun.share(Attempt("run", 1), "first", trace)
    torchrun.share(Attempt("run", 2), "second")
    assert torchrun.shared_trace("first") == trace
    assert torchrun.shared_trace("second") == torchrun.shared_trace("third") == {}


def test_a_rank_that_nobody_tells_gives_up(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "PATIENCE_S", 0.05)
    assert torchrun.shared() is None


def test_what_another_version_left_is_no_attempt(store: Store) -> None:
    store.set(torchrun.KEY, "run-7")
    assert torchrun.shared() is None


def test_without_a_process_group_nobody_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchrun, "_store", lambda: None)
    torchrun.share(Attempt("run", 1))
    assert torchrun.shared() is None


def test_torchs_own_store_has_what_is_used_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not part of this environment")
    made = torch.distributed.HashStore()
    monkeypatch.setattr(torchrun, "_store", lambda: made)
    monkeypatch.setattr(torchrun, "POLL_S", 0.01)
    torchrun.share(Attempt("run", 2))
    assert torchrun.shared() == Attempt("run", 2)
