"""A past run in a real server, where its dashboards look for it: at the times of its steps."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

from tests.replay.replayed import FIXTURES, command
from tests.support.servers import victoria_metrics

LOG = "grpo_one_row_old_and_new_keys.trainer_state.json"
DAYS_AGO = 3


def test_it_is_there_in_the_past(tmp_path: Path) -> None:
    log = tmp_path / LOG
    shutil.copy(FIXTURES / LOG, log)
    ended = int(time.time()) - DAYS_AGO * 86400
    os.utime(log, (ended, ended))
    with victoria_metrics(tmp_path) as server:
        result = command(log, environ={"OTEL_EXPORTER_OTLP_ENDPOINT": server.otlp})
        assert result.exit_code == 0, result.output
        server.settle()
        for query, expected in (
            ("akka_optimize_training_rl_step_reward", 0.365625),
            ("akka_optimize_training_rl_step_completion_length", 249.7),
            ("akka_optimize_training_rl_step_count_total", 10),
        ):
            [sample] = server.query(query, at=ended - 2)  # its row is of the tenth step of twelve
            assert sample.value == pytest.approx(expected)
        assert server.query("akka_optimize_training_rl_step_count_total", at=ended)[0].value == 12
        assert server.query("akka_optimize_training_rl_step_reward") == []
