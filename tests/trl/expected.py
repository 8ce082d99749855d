"""What a step's figures must be, by arithmetic of the tests' own: from the rollouts that the reward functions saw, from
the batches that the model was given, and from what the trainer logged."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
import torch

from akka_otel_callbacks.common.vocabulary import names
from akka_otel_callbacks.common.vocabulary.metric import Metric
from tests.trl.runs import Figures, Run, enclosed
from tests.trl.trainings import Book, Score, Update

RL_LOGGED: Mapping[str, Any] = {
    "loss": names.RL_STEP_LOSS,
    "epoch": names.JOB_EPOCH,
    "entropy": names.RL_STEP_ENTROPY,
    "kl": names.RL_STEP_KL,
    "grad_norm": names.RL_STEP_GRAD_NORM,
    "learning_rate": names.RL_STEP_LEARNING_RATE,
    "clip_ratio/region_mean": names.RL_STEP_CLIP_RATIO,
    "clip_ratio/high_mean": names.RL_STEP_CLIP_RATIO_HIGH,
    "clip_ratio/low_mean": names.RL_STEP_CLIP_RATIO_LOW,
    "tools/call_frequency": names.RL_STEP_TOOL_CALLS,
}
SFT_LOGGED: Mapping[str, Any] = {
    "loss": names.SFT_STEP_LOSS,
    "epoch": names.JOB_EPOCH,
    "grad_norm": names.SFT_STEP_GRAD_NORM,
    "learning_rate": names.SFT_STEP_LEARNING_RATE,
    "mean_token_accuracy": names.SFT_STEP_TOKEN_ACCURACY,
}
LOSS_DIGITS = 5.1e-5
"""transformers rounded the logged loss to four digits up to version 4."""
LOSSES = (names.SFT_STEP_LOSS.name, names.RL_STEP_LOSS.name)
TIMED = {
    metric.name
    for metric in (names.RL_STEP_TIMING, names.RL_STEP_THROUGHPUT, names.SFT_STEP_TIMING, names.SFT_STEP_THROUGHPUT)
}
"""Differ from run to run; tests of their own hold them."""


class Rollouts:
    """The rollouts of one step, generation after generation.

    Attributes:
        scores: [rollouts, functions], NaN for None.
        lengths: tokens of each completion.
        ended: whether a completion came to its EOS; like TRL, a padding token as the last one counts as that.
    """

    def __init__(self, book: Book, step: int, functions: Sequence[str], tokenizer: Any) -> None:
        scorings = book.of_step(step)
        generations = [scorings[at : at + len(functions)] for at in range(0, len(scorings), len(functions))]
        assert all([scoring.function for scoring in one] == list(functions) for one in generations)
        columns = [
            np.array([[np.nan if score is None else score for score in scoring.scores] for scoring in one], float).T
            for one in generations
        ]
        self.functions = functions
        self.generations = len(generations)
        self.scores = np.concatenate(columns) if columns else np.empty((0, len(functions)))
        ids = [tokens for one in generations for tokens in one[0].completion_ids]
        self.prompts = [prompt for one in generations for prompt in one[0].prompts]
        self.lengths = np.array([len(tokens) for tokens in ids], float)
        endings = (tokenizer.eos_token_id, tokenizer.pad_token_id)
        self.ended = np.array([tokens[-1] in endings for tokens in ids], bool)

    def shares(self, weights: Sequence[float]) -> np.ndarray:
        """Weighted scores of the rollouts that were scored at all."""
        return (self.scores * np.array(weights))[~np.isnan(self.scores).all(axis=1)]

    def totals(self, weights: Sequence[float]) -> np.ndarray:
        return np.nansum(self.shares(weights), axis=1)


def std(values: np.ndarray) -> float:
    return float(values.std(ddof=1)) if len(values) > 1 else 0.0


def reward_figures(rollouts: Rollouts, weights: Sequence[float], labels: Sequence[str], group: int) -> Figures:
    """Everything that follows from the scores."""
    figures: Figures = {names.RL_STEP_ROLLOUTS.name: {None: float(len(rollouts.totals(weights)))}}
    totals, shares = rollouts.totals(weights), rollouts.shares(weights)
    if not len(totals):
        return figures
    means, spreads = {"total": totals.mean()}, {"total": std(totals)}
    for column, name in zip(shares.T, labels, strict=True):
        if not np.isnan(column).all():
            means[name], spreads[name] = np.nan_to_num(column).mean(), std(np.nan_to_num(column))
    groups = rollouts.scores * np.array(weights)
    unscored = np.isnan(rollouts.scores).all(axis=1)
    per_group = np.where(unscored, np.nan, np.nansum(groups, axis=1)).reshape(-1, group)
    flat = [std(one[~np.isnan(one)]) < 1e-8 for one in per_group if not np.isnan(one).all()]
    return figures | {
        names.RL_STEP_REWARD.name: {None: totals.mean()},
        names.RL_STEP_REWARD_STD.name: {None: std(totals)},
        names.RL_STEP_REWARD_MIN.name: {None: totals.min()},
        names.RL_STEP_REWARD_MAX.name: {None: totals.max()},
        names.RL_STEP_REWARD_ZERO_RATIO.name: {None: float((totals == 0).mean())},
        names.RL_STEP_REWARD_TERM.name: means,
        names.RL_STEP_REWARD_TERM_STD.name: spreads,
        names.RL_STEP_FRAC_REWARD_ZERO_STD.name: {None: float(np.mean(flat))},
    }


def completion_figures(rollouts: Rollouts) -> Figures:
    """Everything that follows from the completions."""
    figures: Figures = {
        names.RL_STEP_COMPLETION_LENGTH.name: {None: rollouts.lengths.mean()},
        names.RL_STEP_COMPLETION_LENGTH_MAX.name: {None: rollouts.lengths.max()},
        names.RL_STEP_COMPLETION_LENGTH_MIN.name: {None: rollouts.lengths.min()},
        names.RL_STEP_COMPLETION_CLIPPED_RATIO.name: {None: float((~rollouts.ended).mean())},
    }
    if rollouts.ended.any():
        figures[names.RL_STEP_COMPLETION_LENGTH_TERMINATED.name] = {None: rollouts.lengths[rollouts.ended].mean()}
    return figures


BY_SEQUENCE = ("clip_ratio/region_mean", "clip_ratio/high_mean", "clip_ratio/low_mean")
"""What sequence-level importance sampling says of sequences and not of their tokens."""


def of_tokens(updates: Sequence[Update], key: str, row: Mapping[str, Any], by_sequence: bool) -> float:
    """A figure of the step, from those of its micro-batches; the row's where there is not one for each of them."""
    values = [update.values[key] for update in updates if key in update.values]
    weights = [update.rows if by_sequence and key in BY_SEQUENCE else update.tokens for update in updates]
    if not values or len(values) != len(weights):
        return row[key]
    return float(np.average(values, weights=weights))


def rl_figures(
    rollouts: Rollouts,
    updates: Sequence[Update],
    by_sequence: bool,
    row: Mapping[str, Any],
    weights: Sequence[float],
    labels: Sequence[str],
    tokens: float,
    group: int,
) -> Figures:
    """All gauges of one step but the timed ones."""
    figures: Figures = {
        metric.name: {None: of_tokens(updates, key, row, by_sequence)}
        for key, metric in RL_LOGGED.items()
        if key in row
    }
    if "cispo_clip_ratio" in row:  # it clips at the upper bound only
        for metric in (names.RL_STEP_CLIP_RATIO, names.RL_STEP_CLIP_RATIO_HIGH):
            figures[metric.name] = {None: of_tokens(updates, "cispo_clip_ratio", row, by_sequence)}
    if rollouts.generations:
        figures |= reward_figures(rollouts, weights, labels, group)
        figures |= completion_figures(rollouts)
        figures[names.RL_STEP_TOKENS.name] = {None: tokens}
    return figures


def compare(actual: Figures, wanted: Figures) -> None:
    """Equal, in the metrics and series that there are and in every number. TRL keeps scores in 32 bits."""
    actual = {name: series for name, series in actual.items() if name not in TIMED}
    assert {name: set(series) for name, series in actual.items()} == {
        name: set(series) for name, series in wanted.items()
    }
    for name, series in wanted.items():
        digits = LOSS_DIGITS if name in LOSSES else 1e-7
        assert actual[name] == pytest.approx(series, rel=1e-5, abs=digits), name


def check_rl_steps(
    run: Run,
    book: Book,
    rewards: Mapping[Score, float],
    tokenizer: Any,
    *,
    rows: Mapping[int, Mapping[str, Any]] | None = None,
    more: Callable[[Mapping[str, Any]], Figures] = lambda row: {},
    labels: Sequence[str] | None = None,
    group: int = 4,
    streamed: bool = False,
) -> None:
    """Every gauge of every step, and the histograms and the counter after it.

    Args:
        run: the exported run.
        book: what its reward functions saw.
        rewards: weights by function.
        tokenizer: counts the prompts' tokens.
        rows: the log row of each step; those of the run itself where it logged every step.
        more: gauges that this training has beside the usual ones, from a step's row.
        labels: the terms, where they are not the functions' names.
        group: completions per prompt.
        streamed: whether the dataset has no length, so that nothing counts epochs.
    """
    functions = [score.__name__ for score in rewards]
    weights = list(rewards.values())
    assert run.steps, "nothing was exported"
    check_registered(run)
    scored: dict[str, list[float]] = {name: [] for name in (*(labels or functions), "total")}
    lengths: list[float] = []
    for count, step in enumerate(run.steps, start=1):
        rollouts = Rollouts(book, step, functions, tokenizer)
        row = rows[step] if rows else run.row(step)
        tokens = rollouts.lengths.sum() + sum(len(tokenizer(prompt)["input_ids"]) for prompt in rollouts.prompts)
        by_sequence = getattr(book.trainer.args, "importance_sampling_level", "sequence") == "sequence"
        figures = rl_figures(
            rollouts, book.updates[step], by_sequence, row, weights, labels or functions, tokens, group
        )
        figures |= progress(run, names.RL_STEP_NUMBER, step)
        if streamed:
            figures.pop(names.JOB_EPOCH.name)
        if evaluations := [logged["eval_reward"] for at, logged in run.rows if at < step and "eval_reward" in logged]:
            figures[names.RL_EVAL_REWARD.name] = {None: evaluations[-1]}
        compare(run.figures(step), figures | more(row))
        check_rl_times(run, step)
        assert run.shown(names.RL_STEP_COUNT, step) == count
        for name, column in zip(labels or functions, rollouts.shares(weights).T, strict=True):
            scored[name] += column[~np.isnan(column)].tolist()
        scored["total"] += rollouts.totals(weights).tolist()
        lengths += rollouts.lengths.tolist()
        for name, values in scored.items():
            check_reward_histogram(run, step, name, values)
        check_length_histogram(run, step, lengths)


def progress(run: Run, number: Metric, step: int) -> Figures:
    """Where a training that goes to its end is, after what it did between two steps."""
    return {
        number.name: {None: float(step)},
        names.JOB_STEPS_PLANNED.name: {None: float(run.steps[-1])},
        names.JOB_STEPS_PAUSED.name: {"evaluating": 0.0, "checkpointing": 0.0},
    }


def check_rl_times(run: Run, step: int) -> None:
    """The step's duration within the clocks around our callback; its phases add up to it; the throughput is of it."""
    duration = duration_of(run, names.RL_STEP_DURATION, step)
    phases = run.figures(step)[names.RL_STEP_TIMING.name]
    phases.pop("save_checkpoint", None)  # between two steps
    assert set(phases) in ({"gen", "reward", "update_actor"}, {"update_actor"})
    assert min(phases.values()) > 0
    assert sum(phases.values()) == pytest.approx(duration, rel=1e-6)
    tokens, throughput = run.shown(names.RL_STEP_TOKENS, step), run.shown(names.RL_STEP_THROUGHPUT, step)
    assert (tokens is None) == (throughput is None) == ("gen" not in phases)
    if tokens is not None:
        assert throughput == pytest.approx(tokens / duration, rel=1e-6)  # one process on one device


def duration_of(run: Run, metric: Any, step: int) -> float:
    """What the step added to the histogram of durations."""
    after, steps = run.histogram(metric, step), run.steps
    before = run.histogram(metric, steps[steps.index(step) - 1]) if step != steps[0] else None
    assert after is not None
    assert after.count == (before.count if before else 0) + 1
    duration = after.sum - (before.sum if before else 0)
    least, most = enclosed(run.before, run.behind, "begin", "end", step)
    assert least <= duration <= most
    return duration


def check_registered(run: Run) -> None:
    """Whatever was exported is in the registry, with its unit, its kind and no other attributes than there."""
    registered = {metric.name: metric for metric in names.JOB_METRICS}
    kinds = {"gauge": "gauge", "sum": "counter", "histogram": "histogram", "exponential_histogram": "histogram"}
    for point in run.sink.metrics():
        metric = registered[point.name]
        assert (point.unit, point.description) == (metric.unit, metric.description), point.name
        assert kinds[point.kind] == metric.kind.value, point.name
        assert (point.kind == "exponential_histogram") == metric.exponential, point.name
        assert set(point.attributes) <= {attribute.name for attribute in metric.attributes}, point.name
        assert point.kind != "sum" or (point.monotonic and point.cumulative), point.name


def check_reward_histogram(run: Run, step: int, name: str, values: Sequence[float]) -> None:
    """A negative reward is in the lowest bucket, and leaves the histogram without a sum."""
    histogram = run.histogram(names.RL_ROLLOUT_REWARD, step, name)
    if not values:
        assert histogram is None
        return
    assert histogram is not None, f"no rollout rewards of {name}"
    recorded = np.float32(values).astype(float)
    bounds = (0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.99, 1, 2, 5)
    assert histogram.bounds == bounds
    assert histogram.count == len(recorded)
    if recorded.min() < 0:
        assert histogram.sum is None
    else:
        assert histogram.sum == pytest.approx(recorded.sum(), rel=1e-5, abs=1e-6)
    assert histogram.min == pytest.approx(recorded.min(), rel=1e-5)
    assert histogram.max == pytest.approx(recorded.max(), rel=1e-5)
    # A bucket holds what is at most its bound; a score within rounding of a bound may lie on either side of it.
    for bound, at_most in zip(bounds, np.cumsum(histogram.counts), strict=False):
        assert (recorded <= bound - 1e-5).sum() <= at_most <= (recorded <= bound + 1e-5).sum(), f"{name} to {bound}"
    assert histogram.counts[0] == (recorded <= 1e-7).sum()


def check_length_histogram(run: Run, step: int, lengths: Sequence[float]) -> None:
    histogram = run.histogram(names.RL_ROLLOUT_COMPLETION_LENGTH, step)
    if not lengths:
        assert histogram is None
        return
    assert histogram is not None
    assert histogram.scale is not None, "it is to be exponential"
    assert (histogram.count, histogram.sum) == (len(lengths), sum(lengths))
    assert (histogram.min, histogram.max) == (min(lengths), max(lengths))
    assert sum(histogram.counts) + histogram.zero_count == len(lengths)
    base = 2.0**2.0**-histogram.scale
    edges = [base ** (histogram.offset + index + 1) for index in range(len(histogram.counts))]
    for edge, at_most in zip(edges, np.cumsum(histogram.counts), strict=True):
        assert at_most == sum(length <= edge * (1 + 1e-9) for length in lengths)


# -- SFT


class Batches:
    """What the model is given while it trains, and what it answers: token positions, tokens, labels and right
    predictions of each micro-batch, by step."""

    def __init__(self) -> None:
        self.of_step: dict[int, list[tuple[int, int, int, int]]] = {}
        self._predicting = False

    def watch(self, trainer: Any) -> Any:
        """Notes every forward pass of the trainer's model. Returns the trainer."""

        def forward(module: Any, args: Any, kwargs: Mapping[str, Any]) -> None:
            if module.training and not self._predicting:
                ids, mask = kwargs["input_ids"], kwargs.get("attention_mask")
                tokens = int(mask.sum()) if mask is not None else ids.numel()
                counts = (ids.numel(), tokens, *self._predictions(module, kwargs))
                self.of_step.setdefault(trainer.state.global_step + 1, []).append(counts)

        trainer.model.register_forward_pre_hook(forward, with_kwargs=True)
        return trainer

    def _predictions(self, module: Any, kwargs: Mapping[str, Any]) -> tuple[int, int]:
        """Labels, and how many of them the logits predict, by a forward pass of the test's own."""
        labels = kwargs["labels"][:, 1:]
        given = {key: value for key, value in kwargs.items() if key in ("input_ids", "attention_mask", "position_ids")}
        self._predicting = True
        with torch.no_grad():
            predicted = module(**given, use_cache=False).logits[:, :-1].argmax(-1)
        self._predicting = False
        return int((labels != -100).sum()), int(((predicted == labels) & (labels != -100)).sum())

    def tokens(self, step: int) -> int:
        return sum(tokens for _, tokens, _, _ in self.of_step[step])

    def padding(self, step: int) -> float:
        return 1 - self.tokens(step) / sum(positions for positions, *_ in self.of_step[step])

    def accuracy(self, step: int) -> float:
        return sum(right for *_, right in self.of_step[step]) / sum(labels for _, _, labels, _ in self.of_step[step])


def check_sft_steps(
    run: Run,
    batches: Batches,
    *,
    rows: Mapping[int, Mapping[str, Any]] | None = None,
    padded: bool = True,
    without_input: Sequence[int] = (),
    total_rows: int | None = 32,
) -> None:
    """Every gauge of every step, its times, and the counter.

    Args:
        run: the exported run.
        batches: what its model was given.
        rows: the log row of each step; those of the run itself where it logged every step.
        padded: whether batches are padded, so that padding is known.
        without_input: the steps that have no input phase.
        total_rows: of the training set; None where they cannot be counted.
    """
    assert run.steps, "nothing was exported"
    check_registered(run)
    evaluation: dict[str, float] = {}
    saved = False
    for count, step in enumerate(run.steps, start=1):
        row = rows[step] if rows else run.row(step)
        wanted: Figures = {metric.name: {None: row[key]} for key, metric in SFT_LOGGED.items()}
        wanted |= progress(run, names.SFT_STEP_NUMBER, step)
        wanted[names.SFT_STEP_TOKENS.name] = {None: batches.tokens(step)}
        wanted[names.SFT_STEP_TOKEN_ACCURACY.name] = {None: batches.accuracy(step)}
        if padded:
            wanted[names.SFT_STEP_PADDING.name] = {None: batches.padding(step)}
        if evaluation:
            wanted[names.SFT_EVAL_LOSS.name] = {None: evaluation["loss"]}
        shown = run.figures(step)
        assert shown.pop(names.SFT_DATA_ROWS.name, {}).get("total") == total_rows
        if total_rows is None:
            wanted.pop(names.JOB_EPOCH.name)  # an epoch of a stream is as long as the plan
        compare(shown, wanted)
        assert run.shown(names.SFT_STEP_COUNT, step) == count
        check_sft_times(run, step, input_known=step not in without_input, evaluation=evaluation, saved=saved)
        evaluation = evaluation_at(run, step) or evaluation
        saved = saved or ("save", step) in run.exports


def evaluation_at(run: Run, step: int) -> dict[str, float]:
    """Loss and runtime of the last evaluation at a step, by the trainer's log; empty where there was none."""
    found: dict[str, float] = {}
    for at, row in run.rows:
        for key, value in row.items():
            if at == step and key.startswith("eval_") and key.endswith(("_loss", "_runtime")):
                found[key.rsplit("_", 1)[1]] = value
    return found


def check_sft_times(run: Run, step: int, *, input_known: bool, evaluation: Mapping[str, float], saved: bool) -> None:
    """Each phase within the clocks around our callback; the throughput is of the whole update."""
    duration = duration_of(run, names.SFT_STEP_DURATION, step)
    phases = run.figures(step)[names.SFT_STEP_TIMING.name]
    between = {"input"} if input_known else set()
    between |= ({"eval"} if evaluation else set()) | ({"save_checkpoint"} if saved else set())
    assert set(phases) == {"forward_backward", "optimizer", "step"} | between
    assert min(phases.values()) > 0
    assert phases["step"] == pytest.approx(duration, rel=1e-6)
    for phase, start, end in (("forward_backward", "begin", "gradients"), ("optimizer", "gradients", "optimized")):
        least, most = enclosed(run.before, run.behind, start, end, step)
        assert least <= phases[phase] <= most
    if evaluation:
        assert phases["eval"] == evaluation["runtime"]
    throughput = run.shown(names.SFT_STEP_THROUGHPUT, step)
    assert throughput == pytest.approx(run.shown(names.SFT_STEP_TOKENS, step) / duration, rel=1e-6)
