"""Scores many rows at once. If one fails, all of them end."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

T = TypeVar("T")


async def gathered(coroutines: Iterable[Coroutine[Any, Any, T]]) -> list[T]:
    """Runs them at the same time, and returns their results in order. The first exception is raised once the others
    have been cancelled, so that nothing goes on calling a judge that ended the job."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return [*await asyncio.gather(*tasks)]
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
