"""What an instance of the service does: it takes runs from the queue, follows their jobs, and tells the telemetry."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Coroutine
from pathlib import Path

from jobs import Job
from store import ENDED, Refused, Run, Store, Wish

from akka_otel_callbacks.service import (
    ClaimState,
    FailureReason,
    Operation,
    OperationOutcome,
    OperationStage,
    RunPhase,
    ServiceTelemetry,
    StageOutcome,
    StageType,
)

PAUSE_S = 0.2
"""Between two looks at the queue, and at a job."""


class Trainer:
    def __init__(self, store: Store, telemetry: ServiceTelemetry, folder: Path) -> None:
        self._store, self._telemetry, self._folder = store, telemetry, folder
        self._tasks: set[asyncio.Task[None]] = set()

    # What the API asks for

    def submit(
        self,
        project: str,
        devices: int = 1,
        engine: str = "trl-sft",
        steps: int = 3,
        traceparent: str | None = None,
    ) -> Run:
        run = self._store.add(project, devices, engine, steps, traceparent)
        self._telemetry.begin_run(project, run.progress.phase, at_s=run.progress.began_s)
        return run

    def pause(self, run: Run) -> None:
        """Accepts a request. Whichever instance follows the run fulfils it."""
        has_a_job = run.progress.phase in (RunPhase.SUBMITTING, RunPhase.PREPARING, RunPhase.TRAINING)
        if not has_a_job or not self._store.leave_wish(run, "pause"):
            rejected = OperationOutcome.REJECTED, FailureReason.CONFLICT
            self._telemetry.operation(Operation.PAUSE, OperationStage.ACCEPT, *rejected)
            raise Refused(f"run {run.id} is in {run.progress.phase} and cannot be paused")
        self._telemetry.operation(Operation.PAUSE, OperationStage.ACCEPT, OperationOutcome.SUCCEEDED)

    def resume(self, run: Run) -> None:
        is_paused = run.progress.phase == RunPhase.PAUSED
        if not is_paused or self._move(run, RunPhase.AWAITING_DEVICES, ClaimState.QUEUED) is None:
            raise Refused(f"run {run.id} is in {run.progress.phase} and cannot be resumed")

    def cancel(self, run: Run) -> None:
        has_ended, is_followed = run.progress.phase in ENDED, run.claim == ClaimState.GRANTED
        if not has_ended and not is_followed and self._move(run, RunPhase.CANCELLED, claim=None) is not None:
            return
        if has_ended or not self._store.leave_wish(run, "cancel"):
            raise Refused(f"run {run.id} is in {run.progress.phase} and cannot be cancelled")

    def begin_pipeline(self, project: str) -> str:
        pipeline = self._store.begin_pipeline(project)
        self._spawn(self._run_pipeline(pipeline, project))
        return pipeline

    # What goes on by itself

    async def serve(self) -> None:
        """Looks at the cluster and the queue, until it is cancelled. The jobs that it follows end with it."""
        try:
            self._fail_lost_runs()
            while True:
                self._store.read_cluster(os.cpu_count() or 1)  # a real service asks its cluster here
                while (run := self._store.take(self._telemetry.instance)) is not None:
                    self._spawn(self._follow(run))
                await asyncio.sleep(PAUSE_S)
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fail_lost_runs(self) -> None:
        """Those that this instance followed when it was killed: nobody knows what became of their jobs."""
        for run in self._store.runs("instance = ? AND claim = 'GRANTED'", self._telemetry.instance):
            self._move(run, RunPhase.FAILED, claim=None)

    async def _follow(self, run: Run) -> None:
        job, began_s = Job(self._folder / run.id), time.time()
        run = self._must_move(run, RunPhase.SUBMITTING)
        try:
            await job.start(run)
            run = self._must_move(run, RunPhase.PREPARING)
            while job.exit_code is None and (wish := self._store.take_wish(run)) is None:
                if job.trains and run.progress.phase == RunPhase.PREPARING:
                    run = self._must_move(run, RunPhase.TRAINING)
                await asyncio.sleep(PAUSE_S)
            if job.exit_code is None and wish is not None:
                await self._fulfil(wish, run, job)
            elif job.exit_code == 0:
                run = self._must_move(run, RunPhase.REGISTERING)  # a real service writes to its model registry here
                self._must_move(run, RunPhase.COMPLETED, claim=None)
            else:
                await self._stop(run, job, RunPhase.FAILED)
        except asyncio.CancelledError:  # the service ends, and its jobs with it
            await self._stop(self._store.run(run.id), job, RunPhase.FAILED)
            raise
        finally:
            used_s = (time.time() - began_s) * run.devices
            self._telemetry.gpu_time(run.progress.project, used_s, derived=True)

    async def _fulfil(self, wish: Wish, run: Run, job: Job) -> None:
        if wish.what == "cancel":
            await self._stop(run, job, RunPhase.CANCELLED)
        else:
            await self._pause(run, job, wish.accepted_s)

    async def _pause(self, run: Run, job: Job, accepted_s: float) -> None:
        run = self._must_move(run, RunPhase.PAUSING)
        await job.stop()
        stopped = Operation.PAUSE, OperationStage.ACKNOWLEDGE, OperationOutcome.SUCCEEDED
        self._telemetry.operation(*stopped)
        self._telemetry.operation_ended(*stopped, accepted_s=accepted_s)
        self._must_move(run, RunPhase.PAUSED, claim=None)
        released = Operation.PAUSE, OperationStage.RELEASE, OperationOutcome.SUCCEEDED
        self._telemetry.operation(*released)
        self._telemetry.operation_ended(*released, accepted_s=accepted_s)

    async def _stop(self, run: Run, job: Job, end: str) -> None:
        run = self._must_move(run, RunPhase.CLEANING_UP)
        await job.stop()
        self._must_move(run, end, claim=None)

    async def _run_pipeline(self, pipeline: str, project: str) -> None:
        try:
            began_s, run = time.time(), self.submit(project)
            while (now := self._store.run(run.id)).progress.phase not in ENDED:
                await asyncio.sleep(PAUSE_S)
            self._stage_ended(project, StageType.TRAIN, now.progress.phase == RunPhase.COMPLETED, began_s)
            if now.progress.phase == RunPhase.COMPLETED:
                began_s = time.time()  # a real service runs its benchmarks here
                self._stage_ended(project, StageType.EVALUATE, (self._folder / run.id).exists(), began_s)
        finally:
            self._store.end_pipeline(pipeline)

    def _stage_ended(self, project: str, stage: str, is_well: bool, began_s: float) -> None:
        outcome = StageOutcome.COMPLETED if is_well else StageOutcome.FAILED
        self._telemetry.stage_ended(project, stage, outcome, time.time() - began_s)

    def _move(self, run: Run, phase: str, claim: str | None) -> Run | None:
        """Commits a transition and then records it. Of two instances that try, one does both and the other neither."""
        at_s = time.time()
        moved = self._store.move(run, run.progress.entering(phase, at_s), claim)
        if moved is not None:
            self._telemetry.enter_phase(run.progress, phase, at_s=at_s)
        return moved

    def _must_move(self, run: Run, phase: str, claim: str | None = ClaimState.GRANTED) -> Run:
        """A transition of a run that this instance follows, and nobody else moves."""
        moved = self._move(run, phase, claim)
        assert moved is not None, f"somebody else moved run {run.id}"
        return moved

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
