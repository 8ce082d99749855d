"""What this process remembers of its run between two of verl's calls, in one place.

`STATE.reset()` makes it a process that verl has not called yet. The hooks themselves stay.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, WeakSet, ref

from akka_otel_callbacks.verl.inbox import Inbox
from akka_otel_callbacks.verl.timings import Timings

if TYPE_CHECKING:
    from akka_otel_callbacks.common.companion import Companion
    from akka_otel_callbacks.common.run.attempt import Attempt
    from akka_otel_callbacks.common.run.identity import RunIdentity
    from akka_otel_callbacks.verl.driver.backend import Backend
    from akka_otel_callbacks.verl.driver.per_token import Aggregated
    from akka_otel_callbacks.verl.driver.saves import Saves
    from akka_otel_callbacks.verl.rollout.ray_metrics import Gauge
    from akka_otel_callbacks.verl.worker.memory import EngineMemory


class State:
    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        # of every process
        self.identity: RunIdentity | None = None
        """Who the run is, once that is known."""
        self.shared_attempt: Attempt | None = None
        """The run's ID and attempt, where another process of the run has found them out."""
        self.trainings_ended: Counter[str] = Counter()
        """Trainings that ended in this process, by their run's ID."""
        self.aggregated: Aggregated | None = None
        """What verl aggregates in the call that is under way of the actor's loss or of the penalty on the rewards."""

        # of the process that launches trainings
        self.handed_to_job: set[str] = set()
        """The variables that the job has from here, and not from the user."""
        self.trainings_launched: Counter[str] = Counter()
        """Trainings that this process started of each run that the user gave a name."""

        # of the process that is launched
        self.remote_trainers: list[Any] = []
        """Ray's handles of the trainers that it made as actors of their own."""

        # of the process that trains
        self.backends: dict[Backend, WeakSet[Any]] = {}
        """What is open, with those of verl's `Tracking` that log to it and are not finished."""
        self.job_span: Mapping[str, str] | None = None
        """The run's span, also before it begins, once somebody asked for it."""
        self.timings = Timings()
        """What verl's timers measured since the last step."""
        self.inbox = Inbox()
        """What was seen of a step and no log call has taken yet."""
        self.saves: list[Saves] = []
        """The listeners for saves, one for each open run."""
        self.update_began: float | None = None
        """When a supervised trainer began the update that is under way, by `time.perf_counter`."""
        self.validated: ref[Any] | None = None
        """What a supervised trainer goes over in a validation."""
        self.validation_begun_ns: int | None = None
        """When the validation began that is under way, as Unix time."""
        self.worker_groups: WeakSet[Any] = WeakSet()
        """verl's groups of the workers that this process drives."""
        self.reward_model_scores: list[Any] | None = None
        """What the reward model says, while a v1 trainer has its batch scored."""
        self.reward_model_terms: dict[str, dict[str, float]] = {}
        """Its terms of the step's rollouts, by the rollout's key."""
        self.reward_model_graded: dict[str, str] = {}
        """How long it took for each of them, as text."""

        # of an agent loop, and of what scores its rollouts
        self.judges_words: str | None = None
        """What a judge ended the job with."""
        self.loops_with_contexts: WeakSet[Any] = WeakSet()
        """The event loops whose threads know whose rollout they score."""

        # of a worker
        self.worker: Companion | None = None
        """The telemetry of this worker process."""
        self.engine_memories: WeakKeyDictionary[Any, EngineMemory | None] = WeakKeyDictionary()
        """Every engine that trained in this process. None for one without an account."""

        # of a rollout server
        self.gauges: list[Gauge] = []
        """Gauges that have to be set again and again, or Ray forgets them."""


STATE = State()
