"""A judge against a real server that answers well or in any way that judges fail."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

pytest.importorskip("openai", reason="a judge needs the openai client")
pytest.importorskip("uvicorn", reason="the judge of the tests is a real server")

from akka_otel_callbacks.common.graders.call import Call
from akka_otel_callbacks.common.graders.ledger import Ledger
from akka_otel_callbacks.graders import GraderFailure, Judge, JudgeStopped
from tests.support.judge_server import JudgeServer, closed_port, judge_server, score_of

KEY = "sk-judge-secret"
TERM = "model:judge-4b"
PROMPT = "Rate it: {completion}"
TIMEOUT, UNAVAILABLE, UNREADABLE = "timeout", "unavailable", "unreadable"


@pytest.fixture
def server() -> Any:
    with judge_server() as server:
        yield server


def judge_of(server: JudgeServer, **options: Any) -> Judge:
    given = {"api_key": KEY, "prompt": PROMPT, "timeout_s": 5.0, "retries": 0, **options}
    return Judge("org/judge-4b", base_url=server.url, **given)


def asked_once(judge: Judge, completion: str = "hello") -> tuple[float, Call]:
    """The score of a row and the call that was noted of it."""
    with Ledger() as ledger:
        score = judge(completion=completion)
    (call,) = ledger.calls
    return score, call


def test_a_verdict_is_the_score_and_its_call_has_the_time_and_the_tokens(server: JudgeServer) -> None:
    server.behave = "slow"
    before = time.perf_counter()
    score, call = asked_once(judge_of(server))
    took = time.perf_counter() - before
    (asked,) = server.asked
    assert score == score_of("Rate it: hello")
    assert asked.body["model"] == "org/judge-4b"
    assert (call.term, call.rows, call.cause) == (TERM, 1, None)
    assert (call.input_tokens, call.output_tokens) == (asked.input_tokens, asked.output_tokens)
    assert 0.05 <= call.seconds <= took


@pytest.mark.parametrize(
    ("behave", "cause"),
    [
        ("hang", TIMEOUT),
        ("trickle", TIMEOUT),
        ("close", UNAVAILABLE),
        ("html", UNAVAILABLE),
        ("html as json", UNAVAILABLE),
        ("no choices", UNAVAILABLE),
        ("null", UNAVAILABLE),
        ("list", UNAVAILABLE),
        ("no message", UNAVAILABLE),
        ("error object", UNAVAILABLE),
        ("megabyte of nothing", UNAVAILABLE),
        ("404", UNAVAILABLE),
        ("429", UNAVAILABLE),
        ("500", UNAVAILABLE),
        ("503", UNAVAILABLE),
        ("megabyte", UNREADABLE),
        ("deep", UNREADABLE),
        ("tool call", UNREADABLE),
        ("empty", UNREADABLE),
        ("blank", UNREADABLE),
        ("filtered", UNREADABLE),
        ("cut off", UNREADABLE),
        ("prose", UNREADABLE),
        ("nan", UNREADABLE),
        ("infinite", UNREADABLE),
        ("too high", UNREADABLE),
        ("negative", UNREADABLE),
        ("text score", UNREADABLE),
    ],
)
def test_a_failed_call_counts_zero_under_its_cause(behave: str, cause: str, server: JudgeServer) -> None:
    server.behave = behave
    judge = judge_of(server, timeout_s=0.3 if cause == TIMEOUT else 5.0)
    score, call = asked_once(judge)
    assert (score, call.cause) == (0.0, cause)
    (asked,) = server.asked
    reported = (asked.input_tokens, asked.output_tokens) if cause == UNREADABLE else (None, None)
    assert (call.input_tokens, call.output_tokens) == reported, "tokens are spent on a reply without a verdict, too"
    if cause == TIMEOUT:
        assert call.seconds >= 0.3
    server.behave = "one"
    assert judge(completion="the next") == 1.0, "one failure harms nothing but its own row"


def test_nobody_there_is_unavailable() -> None:
    with closed_port() as url:
        score, call = asked_once(Judge("judge-4b", base_url=url, prompt=PROMPT, retries=0))
    assert (score, call.cause) == (0.0, UNAVAILABLE)


@pytest.mark.parametrize("behave", ["no usage", "odd usage"])
def test_a_reply_that_does_not_say_its_tokens_adds_none(behave: str, server: JudgeServer) -> None:
    server.behave = behave
    score, call = asked_once(judge_of(server))
    assert (score, call.input_tokens, call.output_tokens) == (0.5, None, None)


def test_overload_is_tried_again_within_the_call(server: JudgeServer) -> None:
    server.behave = lambda asked: "503" if len(server.asked) == 1 else "one"
    score, call = asked_once(judge_of(server, retries=1))
    assert (score, call.cause, len(server.asked)) == (1.0, None, 2)


# -- What ends the job


@pytest.mark.parametrize("status", ["401", "403"])
def test_a_refused_credential_ends_the_job_and_is_not_counted(
    status: str, server: JudgeServer, caplog: pytest.LogCaptureFixture
) -> None:
    server.behave = status
    judge = judge_of(server)
    with Ledger() as ledger, pytest.raises(JudgeStopped) as stopped:
        judge(prompts=["p"] * 50, completions=["a secret completion"] * 50)
    assert ledger.calls == []
    assert server.url in str(stopped.value)
    assert f"HTTP {status}" in str(stopped.value)
    assert len(server.asked) <= 16, "nobody is asked behind the first that was refused but those that ask at once"
    server.behave = "one"
    with pytest.raises(JudgeStopped):
        judge(completion="the next")
    assert not any("the next" in asked.text for asked in server.asked)
    said = "".join([str(stopped.value), repr(stopped.value.__cause__), repr(stopped.value.__context__), caplog.text])
    assert KEY not in said
    assert "secret completion" not in said


@pytest.mark.parametrize("behave", ["500", "prose"])
def test_too_many_failures_in_a_row_end_the_job(behave: str, server: JudgeServer) -> None:
    server.behave = behave
    judge = judge_of(server, give_up_after=7, concurrency=4)
    with Ledger() as ledger, pytest.raises(JudgeStopped, match="7 calls in a row") as stopped:
        judge(prompts=["p"] * 50, completions=["c"] * 50)
    assert server.url in str(stopped.value)
    assert "make a new Judge" in str(stopped.value)
    assert len(ledger.calls) == 6, "the one that ends the job is not counted"
    assert len(server.asked) <= 7 + 3


def test_a_verdict_in_between_starts_the_row_anew(server: JudgeServer) -> None:
    server.behave = lambda asked: "one" if len(server.asked) % 5 == 0 else "500"
    judge = judge_of(server, give_up_after=5, concurrency=1)
    with Ledger() as ledger:
        scores = judge(prompts=["p"] * 40, completions=["c"] * 40)
    assert sum(scores) == 8
    assert Counter(call.cause for call in ledger.calls) == {UNAVAILABLE: 32, None: 8}


def test_failures_of_all_threads_and_loops_are_of_one_row(server: JudgeServer) -> None:
    server.behave = "500"
    judge, stopped = judge_of(server, give_up_after=9), []

    def ask(asynchronous: bool) -> None:
        for _ in range(9):
            try:
                asyncio.run(judge.asynchronous(completion="c")) if asynchronous else judge(completion="c")
            except JudgeStopped as error:
                stopped.append(error)
                return

    with ThreadPoolExecutor() as pool:
        [*pool.map(ask, [True, False, True])]
    assert len(stopped) == 3
    assert 9 <= len(server.asked) <= 9 + 2


# -- How it is called


def test_a_batch_is_scored_in_its_order_and_not_too_many_at_once(server: JudgeServer) -> None:
    server.behave = "slow"
    judge = judge_of(server, concurrency=3)
    completions = [f"text {at}" for at in range(10)]
    with Ledger() as ledger:
        scores = judge(prompts=["p"] * 10, completions=completions, completion_ids=[[1]] * 10, trainer_state=object())
    assert scores == [score_of(f"Rate it: {text}") for text in completions]
    assert len(ledger.calls) == 10
    assert server.most_at_once == 3


def test_an_asynchronous_judge_is_bounded_likewise(server: JudgeServer) -> None:
    server.behave = "slow"
    judge = judge_of(server, concurrency=2)

    async def together() -> list[Any]:
        batch = judge.asynchronous(prompts=["p"] * 4, completions=["a", "b", "c", "d"])
        return [*await asyncio.gather(batch, judge.asynchronous(data_source="", solution_str="e", ground_truth="x"))]

    with Ledger() as ledger:
        scores, alone = asyncio.run(together())
    assert scores == [score_of(f"Rate it: {text}") for text in "abcd"]
    assert alone == score_of("Rate it: e"), "a row of verl's has its completion under another name"
    assert server.most_at_once == 2
    assert len(ledger.calls) == 5


def test_every_loop_has_a_client_of_its_own(server: JudgeServer) -> None:
    judge = judge_of(server)
    for text in "abc":  # a client keeps connections of its loop, which is closed after each
        assert asyncio.run(judge.asynchronous(completion=text)) == score_of(f"Rate it: {text}")
    assert judge(completion="d") == score_of("Rate it: d")


def test_within_a_running_loop_the_plain_judge_works_too(server: JudgeServer) -> None:
    judge = judge_of(server)

    async def reward() -> Any:
        return judge(completion="a")

    assert asyncio.run(reward()) == score_of("Rate it: a")


def test_threads_of_a_users_own_are_heard(server: JudgeServer) -> None:
    judge = judge_of(server)
    with Ledger() as ledger, ThreadPoolExecutor(4) as pool:
        [*pool.map(lambda text: judge(completion=text), "abcdefgh")]
    assert len(ledger.calls) == 8


def test_outside_of_a_scoring_nothing_is_noted_and_the_score_is_there(server: JudgeServer) -> None:
    assert judge_of(server)(completion="a") == score_of("Rate it: a")


def test_conversations_are_asked_about_as_text(server: JudgeServer) -> None:
    judge = judge_of(server, prompt="{prompt} / {completion} / {answer}")
    turn = {"role": "assistant", "content": "four"}
    asked = {"role": "user", "content": [{"type": "text", "text": "2+2?"}]}
    judge(prompts=[[asked]], completions=[[turn, {"role": "assistant", "content": None}]], answer=[4])
    assert server.asked[0].text == "2+2? / four\n / 4"


def test_a_function_may_make_the_prompt(server: JudgeServer) -> None:
    def prompt(completion: str, answer: int) -> list[dict[str, str]]:
        return [{"role": "system", "content": "judge"}, {"role": "user", "content": f"{completion}={answer}?"}]

    judge_of(server, prompt=prompt, temperature=0.25)(prompts=["p"], completions=["c"], answer=[4], other=["x"])
    (asked,) = server.asked
    assert [message["content"] for message in asked.body["messages"]] == ["judge", "c=4?"]
    assert asked.body["temperature"] == 0.25


def test_a_prompt_that_asks_for_what_is_not_there_says_so(server: JudgeServer) -> None:
    with pytest.raises(ValueError, match=r"asks for 'question'; a row has completion, prompt") as error:
        judge_of(server, prompt="{question}")(prompt="a secret prompt", completion="c")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize("returned", [None, 3, {"role": "user"}])
def test_a_prompt_function_that_returns_no_prompt_is_no_failure_of_the_judge(
    returned: Any, server: JudgeServer
) -> None:
    judge = judge_of(server, prompt=lambda completion: returned)
    with Ledger() as ledger, pytest.raises(TypeError, match=f"returned a {type(returned).__name__};"):
        judge(completion="c")
    assert (ledger.calls, server.asked) == ([], [])


@pytest.mark.parametrize("prompt", ["{completion[0]}", "{completion:.2}", 'Say {{"score": 1}} of {completion}'])
def test_a_template_may_use_what_formats_have(prompt: str, server: JudgeServer) -> None:
    judge_of(server, prompt=prompt)(completion="cd")
    assert server.asked[-1].text == prompt.format(completion="cd")


def test_a_parser_of_ones_own(server: JudgeServer) -> None:
    server.behave = "prose"
    judge = judge_of(server, parse=lambda text: "good" in text)
    assert asked_once(judge)[0] == 1.0


@pytest.mark.parametrize("raised", [ValueError("no"), KeyError("x"), RecursionError(), ZeroDivisionError()])
def test_a_parser_that_raises_finds_no_verdict(raised: Exception, server: JudgeServer) -> None:
    def parse(text: str) -> float:
        raise raised

    score, call = asked_once(judge_of(server, parse=parse))
    assert (score, call.cause) == (0.0, UNREADABLE)


def test_a_parser_may_name_the_cause(server: JudgeServer) -> None:
    def parse(text: str) -> float:
        raise GraderFailure("ungradable")

    assert asked_once(judge_of(server, parse=parse))[1].cause == "ungradable"


def test_bounds_may_be_others(server: JudgeServer) -> None:
    server.behave = "too high"
    assert asked_once(judge_of(server, bounds=(0, 5)))[0] == 1.5


contents = st.one_of(
    st.none(),
    st.text(),
    st.floats().map(str),
    st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps),
    st.fixed_dictionaries({"score": st.none() | st.floats() | st.text() | st.booleans()}).map(json.dumps),
)
parts = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "choices",
                    "message",
                    "content",
                    "usage",
                    "prompt_tokens",
                    "completion_tokens",
                    "finish_reason",
                    "index",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
replies = st.one_of(
    parts,
    st.builds(
        lambda content, finish, usage: {
            "choices": [{"index": 0, "finish_reason": finish, "message": {"role": "assistant", "content": content}}],
            "usage": usage,
        },
        contents,
        st.none() | st.text(max_size=4) | st.sampled_from(["stop", "length"]),
        parts,
    ),
)


@pytest.fixture(scope="module")
def scripted() -> Iterator[tuple[JudgeServer, Judge]]:
    """A server that replies what a test says, and a judge that never gives up."""
    with judge_server("scripted") as server:
        yield server, judge_of(server, give_up_after=10_000)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(replies)
def test_whatever_a_server_sends_is_a_score_or_a_cause(scripted: tuple[JudgeServer, Judge], reply: Any) -> None:
    server, judge = scripted
    server.script = reply
    score, call = asked_once(judge)
    assert 0.0 <= score <= 1.0
    assert call.cause in (None, UNAVAILABLE, UNREADABLE)
    assert score == 0.0 or call.cause is None
    for tokens in (call.input_tokens, call.output_tokens):
        assert tokens is None or (type(tokens) is int and tokens >= 0)


# -- Settings, copies, ends


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"bounds": (1.0, 0.0)}, "bounds"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"retries": -1}, "retries"),
        ({"concurrency": 0}, "concurrency"),
        ({"give_up_after": 0}, "give_up_after"),
        ({"stream": True}, "stream"),
        ({"temprature": 0}, "temprature"),
        ({"term": 3}, "term"),
        ({"base_url": "judge:8000/v1"}, "'judge:8000/v1' must begin with http"),
        ({"prompt": "{} {completion}"}, "positional fields. A brace that is meant"),
        ({"prompt": "{completion"}, "expected '}'"),
        ({"prompt": 'Say {"score": 1} of {completion}'}, "A brace that is meant"),
        ({"prompt": "{completion.text}"}, "no attribute 'text'"),
        ({"prompt": None}, "a NoneType is neither"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(wrong: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Judge("judge-4b", **{"base_url": "http://localhost:1/v1", "prompt": PROMPT, **wrong})


def test_without_a_key_only_a_server_of_ones_own_is_asked(monkeypatch: pytest.MonkeyPatch, server: JudgeServer) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="OPENAI_API_KEY"):
        Judge("gpt", prompt=PROMPT)
    assert judge_of(server, api_key=None)(completion="a") == score_of("Rate it: a")
    monkeypatch.setenv("OPENAI_API_KEY", "from the environment")
    judge_of(server, api_key=None)(completion="a")
    assert server.asked[-1].key == "Bearer from the environment"


def test_a_copy_by_pickle_has_its_own_clients_and_failures(server: JudgeServer) -> None:
    server.behave = "500"
    judge = judge_of(server, give_up_after=2)
    judge(completion="a")
    copy = pickle.loads(pickle.dumps(judge_of(server, give_up_after=2)))
    copy(completion="a")
    with pytest.raises(JudgeStopped):
        judge(completion="a")
    server.behave = "one"
    assert copy(completion="a") == 1.0
    assert copy.__name__ == copy.asynchronous.__name__ == TERM


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_asks_by_itself(server: JudgeServer) -> None:
    judge = judge_of(server)
    judge(completion="a")
    child = os.fork()
    if child == 0:
        try:
            status = int(judge(completion="b") != score_of("Rate it: b"))
        except BaseException:  # noqa: BLE001 - the child must not go on with the parent's tests
            status = 2
        os._exit(status)
    for _ in range(200):
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            break
        time.sleep(0.05)
    else:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        pytest.fail("the child waits for a thread that it does not have")
    assert os.waitstatus_to_exitcode(status) == 0


def test_an_interrupt_ends_the_call(server: JudgeServer) -> None:
    server.behave = "hang"
    judge = judge_of(server, timeout_s=30)

    def interrupt() -> None:
        while not server.asked:
            time.sleep(0.01)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    begin = time.perf_counter()
    with Ledger() as ledger, pytest.raises(KeyboardInterrupt):
        judge(completion="a")
    thread.join()
    assert time.perf_counter() - begin < 20
    assert ledger.calls == []


def test_a_process_ends_though_its_judge_is_still_being_asked() -> None:
    with judge_server("hang") as server:
        source = (
            "import threading, time\nfrom akka_otel_callbacks.graders import Judge\n"
            f"judge = Judge('j', base_url={server.url!r}, prompt='x', timeout_s=60)\n"
            "threading.Thread(target=judge, daemon=True).start()\ntime.sleep(1)"
        )
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_no_prompt_no_reply_and_no_key_is_in_a_log_line(server: JudgeServer, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    for behave in ("score", "prose", "500", "html", "close", "hang"):
        server.behave = behave
        judge_of(server, timeout_s=0.3)(completion="a secret completion")
    for secret in (KEY, "secret completion", "rather good", "Bad gateway"):
        assert secret not in caplog.text
