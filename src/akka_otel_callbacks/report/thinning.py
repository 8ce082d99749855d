"""Fewer points for the same picture. Spikes of a single point stay."""

from __future__ import annotations

from collections.abc import Sequence


def parts(x: Sequence[float], most: int) -> list[range]:
    """The places of the points by equal parts of the x axis, ascending; a part without points is left out.

    Args:
        x: ascending.
        most: how many parts there are at most. Where there are no more points, each is a part of its own.
    """
    if len(x) <= most:
        return [range(place, place + 1) for place in range(len(x))]
    width, found, begin = (x[-1] - x[0]) / most, [], 0
    for part in range(1, most + 1):
        end = begin
        while end < len(x) and (part == most or x[end] < x[0] + part * width):
            end += 1
        if begin < end:
            found.append(range(begin, end))
        begin = end
    return found


def extremes(x: Sequence[float], y: Sequence[float], most: int) -> list[int]:
    """The places of the points to keep, ascending: the first and the last one, and of each part the least and the
    greatest value.

    Args:
        x: ascending.
        y: as many finite values.
        most: how many points are kept at most, at least 4. All of them where there are no more.
    """
    if len(x) <= most:
        return [*range(len(x))]
    kept = {0, len(x) - 1}
    for part in parts(x, (most - 2) // 2):
        kept |= {min(part, key=y.__getitem__), max(part, key=y.__getitem__)}
    return sorted(kept)
