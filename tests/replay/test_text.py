"""Text files in every way in which people keep them."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from akka_otel_callbacks.replay import text
from akka_otel_callbacks.replay.text import lines, text_of

ROWS = ["step:1 - a:1", "", "Zeile zwei: äöü ✓", "x" * 100]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("packed", [False, True])
def test_any_encoding_and_line_end(tmp_path: Path, encoding: str, end: str, packed: bool) -> None:
    content = (end.join(ROWS) + end).encode(encoding)
    file = tmp_path / "log"
    file.write_bytes(gzip.compress(content) if packed else content)
    assert [(line.text, line.is_whole) for line in lines(file)] == [(row, True) for row in ROWS]


def test_the_last_line_of_a_killed_run_is_not_whole(tmp_path: Path) -> None:
    file = tmp_path / "log"
    file.write_text("one\ntwo\nthr")
    assert [(line.text, line.is_whole) for line in lines(file)] == [("one", True), ("two", True), ("thr", False)]


def test_an_archive_that_was_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    rows = [f"line {number} {number * 7919 % 104729}" for number in range(50_000)]
    packed = gzip.compress("\n".join(rows).encode())
    file = tmp_path / "log.gz"
    file.write_bytes(packed[: len(packed) // 2])
    found = [line.text for line in lines(file) if line.is_whole]
    assert 1000 < len(found) < len(rows)
    assert found == rows[: len(found)]
    assert text_of(file).startswith("line 0 0\n")


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(content=st.binary(), block=st.integers(1, 8))
def test_any_bytes_are_lines_whatever_the_blocks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, block: int
) -> None:
    file = tmp_path / "log"
    file.write_bytes(content)
    monkeypatch.setattr(text, "BLOCK", 1 << 20)
    expected = [line.text for line in lines(file)]
    monkeypatch.setattr(text, "BLOCK", block)
    assert [line.text for line in lines(file)] == expected
    assert all("\n" not in line and "\r" not in line for line in expected)
