"""`make learn` as tests, an hour or two: python -m pytest -m slow tests/benchmarks. Its page is docs/learning.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.experiments import Experiment
from benchmarks.learn import EXPERIMENTS, measured


@pytest.mark.slow
@pytest.mark.smollm2
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("experiment", EXPERIMENTS, ids=lambda experiment: experiment.name)
@pytest.mark.usefixtures("prefect_server")
def test_smollm2_reaches_the_goal_of(experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL", raising=False)
    finding = measured(experiment, tmp_path).finding
    assert finding.met, finding.figures
