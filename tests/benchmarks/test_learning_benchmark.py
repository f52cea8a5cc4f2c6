"""The demo's configuration on the tiny model: it learns nothing there, but every figure is measured."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from benchmarks.learning import learn

SMALL = ["model.name=tiny", "cycles=1", "groups_per_cycle=2", "group_size=2", "evaluation.max_prompts=2"]


def test_learning_is_measured_on_the_demos_configuration_with_a_gateway_of_its_own(
    prefect_server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL", raising=False)
    own_before = time.process_time()
    before, after, seconds, cpu = learn(1, tmp_path, SMALL)
    own = time.process_time() - own_before
    assert 0 <= before.ours <= 1
    assert 0 <= after.ours <= 1
    assert seconds.ours > 0
    assert cpu.ours > own, "the gateway and the engine are counted too"
    assert after.name == "seed 1: held-out accuracy after"
    assert (tmp_path / "runs" / "demo-grpo-addition" / "summary.json").is_file()
