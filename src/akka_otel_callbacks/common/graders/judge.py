"""A model that scores rollouts, behind an OpenAI-compatible chat endpoint."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from akka_otel_callbacks.common.graders.endpoint import KEY, TIMEOUT, Endpoint, Refused
from akka_otel_callbacks.common.graders.failure import GraderFailure
from akka_otel_callbacks.common.graders.function import marked
from akka_otel_callbacks.common.graders.gather import gathered
from akka_otel_callbacks.common.graders.loops import wait_for
from akka_otel_callbacks.common.graders.prompt import Messages, Prompt, flaw_of, messages_for
from akka_otel_callbacks.common.graders.reply import UNAVAILABLE, text_of_reply, usage_of
from akka_otel_callbacks.common.graders.rows import Row, is_batch, named, rows_of
from akka_otel_callbacks.common.graders.scoring import Scoring
from akka_otel_callbacks.common.graders.strikes import Strikes
from akka_otel_callbacks.common.graders.terms import model_term
from akka_otel_callbacks.common.graders.verdict import Parse, parse_score, verdict

HINTS = {
    TIMEOUT: "the last one had no answer in time",
    UNAVAILABLE: "the last one had no chat completion for an answer, or could not be made",
}
UNREADABLE_HINT = "the last one was answered without a verdict: check the prompt and the model"


class Judge:
    """A reward term that asks a model about each rollout: one call a rollout, several at a time.

    A judge itself is a plain reward function, for TRL's batches and for a single row. `asynchronous` is the same as an
    `async` function, for TRL's asynchronous rewards and verl's reward loop. A call without a verdict scores zero, and
    is counted under its cause. A judge that refuses the credentials, or fails too often in a row, ends the job with
    a `JudgeStopped`.

    Args:
        model: the model's name at the endpoint. The term is `model:` and its last part.
        prompt: a template with the row's columns in braces, such as `{prompt}`, `{completion}` and, of verl,
            `{ground_truth}`; or a function of them that returns a text or a list of messages.
        base_url: of the endpoint, such as `http://judge:8000/v1`; OPENAI_BASE_URL or OpenAI's own without it.
        api_key: OPENAI_API_KEY without it.
        parse: gets the verdict out of the reply's text: a number, or true or false. Without it the reply has to be a
            number or a JSON object with a `score`.
        bounds: the lowest and the highest verdict. A number outside is not a verdict.
        term: another name for the term.
        timeout_s: seconds for one call, its retries included.
        retries: how often the client tries again where the endpoint could not be reached or was overloaded.
        concurrency: most calls at a time in an event loop.
        give_up_after: failures in a row, in one process, that end the job.
        options: further arguments of the request, such as `temperature=0` or `max_tokens=200`.

    Raises:
        ImportError: the `openai` client is not installed.
        ValueError: a setting that makes no sense; the message says which.
    """

    __name__: str
    """The term, as TRL asks for it."""

    def __init__(
        self,
        model: str,
        *,
        prompt: Prompt,
        base_url: str | None = None,
        api_key: str | None = None,
        parse: Parse = parse_score,
        bounds: tuple[float, float] = (0.0, 1.0),
        term: str | None = None,
        timeout_s: float = 60.0,
        retries: int = 2,
        concurrency: int = 16,
        give_up_after: int = 20,
        **options: Any,
    ) -> None:
        if not bounds[0] < bounds[1]:
            raise ValueError(f"the judge {model}: bounds={bounds} must be the lowest and the highest verdict")
        if give_up_after < 1:
            raise ValueError(f"the judge {model}: give_up_after={give_up_after} must be at least 1")
        if (flaw := flaw_of(prompt)) is not None:
            raise ValueError(f"the judge {model}: its prompt is no template: {flaw}")
        self.term = term or model_term(model)
        self._endpoint = Endpoint(model, base_url, api_key, timeout_s, retries, concurrency, options)
        self._prompt, self._parse, self._bounds = prompt, parse, bounds
        self._give_up_after = give_up_after
        self._begin()

    def _begin(self) -> None:
        self._strikes = Strikes(self._give_up_after)
        self.asynchronous: Callable[..., Any] = marked(_asynchronous(self), self.term)
        marked(self, self.term)

    def __reduce__(self) -> tuple[Callable[..., Judge], tuple[dict[str, Any]]]:
        """A copy has failures of its own."""
        ours = ("_strikes", "asynchronous")
        return _restored, ({name: value for name, value in vars(self).items() if name not in ours},)

    def __call__(self, **row: Any) -> Any:
        """Scores a batch of TRL's, or one row.

        Returns:
            A list with a score for each row of a batch; of one row its score.

        Raises:
            JudgeStopped: the judge ends the job.
            ValueError: the prompt asks for a column that there is not.
            TypeError: the prompt is a function that returned neither a text nor a list.
        """
        return wait_for(self._scored(row))

    async def _scored(self, row: Row) -> Any:
        if is_batch(row):
            return await gathered(map(self._score, rows_of(row)))
        return await self._score(named(row))

    async def _score(self, row: Row) -> float:
        messages = messages_for(self._prompt, row)
        async with self._endpoint.slot():
            self._strikes.check()
            with Scoring(self.term) as scoring:
                return await self._judged(messages, scoring)
            return 0.0

    async def _judged(self, messages: Messages, scoring: Scoring) -> float:
        """The verdict of one call.

        Raises:
            GraderFailure: there is none.
            JudgeStopped: the judge has ended the job.
        """
        refused = None
        try:
            reply = await self._endpoint.ask(messages)
            scoring.input_tokens, scoring.output_tokens = usage_of(reply)
            found = verdict(text_of_reply(reply), self._parse, self._bounds)
        except Refused as error:
            refused = error.status
        except GraderFailure as failure:
            self._strikes.failed(str(self._endpoint), HINTS.get(failure.cause, UNREADABLE_HINT))
            raise
        if refused is not None:
            self._strikes.stop(
                f"{self._endpoint} refuses the job's credentials (HTTP {refused}): check the key that "
                f"Judge(api_key=…) or {KEY} gives"
            )
        self._strikes.succeeded()
        return found


def _asynchronous(judge: Judge) -> Callable[..., Any]:
    async def scored(**row: Any) -> Any:
        return await judge._scored(row)

    return scored


def _restored(state: dict[str, Any]) -> Judge:
    judge = Judge.__new__(Judge)
    vars(judge).update(state)
    judge._begin()
    return judge
