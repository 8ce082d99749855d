"""The rules by which a page says what deserves attention."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from akka_otel_callbacks.report import findings
from akka_otel_callbacks.report.history import History


@dataclass(frozen=True, slots=True)
class Rule:
    """One thing to look for.

    Attributes:
        name: what it finds, in two or three words.
        panel: where to look.
        words: the rule, for people.
        found: what the numbers are, a line each; nothing where the rule does not apply.
        bad: whether the run is broken, rather than worth a look.
    """

    name: str
    panel: str
    words: str
    found: Callable[[History], Iterator[str]]
    bad: bool = False


RULES: Sequence[Rule] = (
    Rule("Failed", "who", "An exception ended the training", findings.failed, bad=True),
    Rule("Gone", "who", "The process is gone from this machine before the last planned step", findings.gone, bad=True),
    Rule(
        "Stalled",
        "phases",
        f"No step for {findings.STALL_STEPS} times the median step and {findings.STALL_S:.0f} s, "
        "and neither an evaluation nor a checkpoint",
        findings.stalled,
        bad=True,
    ),
    Rule("Not finite", "gradient", "A figure was NaN or infinite", findings.nonfinite, bad=True),
    Rule("XID", "gpu", "The driver reported a fault of a GPU", findings.xids, bad=True),
    Rule(
        "Grader failing",
        "graders",
        f"At least {findings.GRADER_FAILURES:.0%} of a term's calls failed",
        findings.grader_failures,
        bad=True,
    ),
    Rule(
        "Dead groups",
        "groups",
        f"At least {findings.DEAD_GROUPS:.0%} of the groups have no variance in their reward",
        findings.dead_groups,
    ),
    Rule(
        "Truncation rising",
        "length",
        f"At least {findings.TRUNCATED:.0%} of the completions are truncated, "
        f"{findings.TRUNCATED_MORE * 100:.0f} points more than at best, in every step lately",
        findings.truncation,
    ),
    Rule(
        "Entropy collapse",
        "entropy",
        f"At most {findings.ENTROPY_NATS} nats per token, and a loss of {1 - findings.ENTROPY_LEFT:.0%}",
        findings.entropy_collapse,
    ),
    Rule(
        "Reward at its ceiling",
        "reward",
        f"The mean reward is at {findings.CEILING:.0%} of its range",
        findings.ceiling,
    ),
    Rule(
        "Tools failing",
        "graders",
        f"At least {findings.TOOL_FAILURES:.0%} of the tool calls failed",
        findings.tool_failures,
    ),
    Rule(
        "Held-out loss rising",
        "loss",
        f"The last {findings.EVALUATIONS} evaluations of a set were {findings.HELD_OUT_MORE:.0%} above its best one",
        findings.held_out_rising,
    ),
    Rule(
        "Input-bound",
        "phases",
        f"At least {findings.INPUT_SHARE:.0%} of a step waits for its input",
        findings.input_bound,
    ),
    Rule(
        "Generation-bound",
        "phases",
        f"Generation takes {findings.GENERATION_SHARE:.0%} of a step, "
        f"or a role waits for {findings.WAITING_SHARE:.0%} of it",
        findings.generation_bound,
    ),
    Rule("Memory repair pending", "gpu", "A repair of a GPU's memory waits for a reset", findings.repairs),
    Rule("Steps without points", "who", "The telemetry had to leave out the points of steps", findings.dropped),
)
