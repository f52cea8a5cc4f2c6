"""Planned memory beside the peaks that `python -m benchmarks.plan` has measured, in minutes, and left in plan.json."""

from __future__ import annotations

import json

import pytest

from algorithms.model_specs import model_spec
from benchmarks import plan
from benchmarks.engine import MODEL
from flows.plan.engine_memory import engine_memory

KEPT = json.loads(plan.PEAKS.read_text(encoding="utf-8"))


def test_every_shape_has_been_measured() -> None:
    assert list(KEPT) == list(plan.SHAPES)


@pytest.mark.parametrize("name", plan.SHAPES, ids=["grpo", "sft", "long"])
def test_the_plan_is_within_a_tenth_of_the_peak_that_was_measured(name: str) -> None:
    found = engine_memory(model_spec(MODEL), plan.SHAPES[name].held).total / plan.MIB
    assert round(found) == KEPT[name]["planned_mib"], "the plan is another: python -m benchmarks.plan, then make docs"
    assert found == pytest.approx(KEPT[name]["measured_mib"], rel=0.1)
