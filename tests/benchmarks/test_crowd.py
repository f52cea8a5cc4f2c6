"""Many runs on one gateway, with faults."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.crowd import holds, measure, script

GOOD: dict[str, Any] = {
    "runs": 8,
    "completed": 8,
    "adapters_equal": 8,
    "lost_operations": 0,
    "surplus_operations": 0,
    "double_executions": 0,
    "open_sessions": 0,
}


@pytest.mark.parametrize(
    "breach",
    [
        {"completed": 7},
        {"adapters_equal": 7},
        {"lost_operations": 1},
        {"surplus_operations": 1},
        {"double_executions": 1},
        {"open_sessions": 1},
    ],
)
def test_a_crowd_fails_by_each_single_breach(breach: dict[str, int]) -> None:
    assert holds(GOOD)
    assert not holds(GOOD | breach)


def test_the_faults_of_a_crowd_are_those_of_its_seed() -> None:
    assert script(8, seed=3) == script(8, seed=3) != script(8, seed=4)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_crowd_with_faults_and_a_killed_client_ends_as_if_each_run_had_been_alone(tmp_path: Path) -> None:
    figures = measure(8, 2, 1, 0, tmp_path)
    assert holds(figures), figures
    assert figures["kills"] == 1
    assert figures["retries"] > 0
