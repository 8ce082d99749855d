"""To which rollout a call belongs."""

from __future__ import annotations

import asyncio
import threading

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.ledger import Ledger, note


def test_the_innermost_of_its_context_gets_a_call() -> None:
    with Ledger() as outer:
        note(Call("a", 1))
        with Ledger() as inner:
            note(Call("b", 1))
        note(Call("c", 1))
    note(Call("d", 1))
    assert [call.term for call in outer.calls] == ["a", "c"]
    assert [call.term for call in inner.calls] == ["b"]


def test_tasks_that_run_at_once_do_not_mix() -> None:
    async def rollout(name: str) -> list[str]:
        with Ledger() as ledger:
            for _ in range(20):
                await asyncio.sleep(0)
                note(Call(name, 1))
                await asyncio.to_thread(note, Call(name, 1))
        return [call.term for call in ledger.calls]

    async def together() -> list[list[str]]:
        return [*await asyncio.gather(*map(rollout, "abcd"))]

    assert asyncio.run(together()) == [[name] * 40 for name in "abcd"]


def test_a_thread_without_a_context_is_of_the_latest() -> None:
    with Ledger() as outer, Ledger() as inner:
        thread = threading.Thread(target=note, args=(Call("a", 1),))
        thread.start()
        thread.join()
    assert (outer.calls, len(inner.calls)) == ([], 1)


def test_many_threads_open_and_close_while_others_note() -> None:
    def work() -> None:
        for _ in range(2000):
            with Ledger() as own:
                note(Call("a", 1))
            counts.append(len(own.calls))

    def stray() -> None:
        while not done.is_set():
            note(Call("stray", 1))

    counts: list[int] = []
    done = threading.Event()
    workers, other = [threading.Thread(target=work) for _ in range(4)], threading.Thread(target=stray)
    for thread in (*workers, other):
        thread.start()
    for thread in workers:
        thread.join()
    done.set()
    other.join()
    assert len(counts) == 8000
    assert min(counts) >= 1
