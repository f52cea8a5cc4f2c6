"""What is planned at least, typically, at most. Against the ledger: test_planned_operations."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tiny_configs import tiny_config

from algorithms.resampling_odds import flat_share
from algorithms.spans import Span
from flows.config import GrpoConfig
from flows.config.stop import StopConfig
from flows.counts.draws import draws_of
from flows.counts.end import fewest_cycles
from flows.counts.operations import planned_operations
from flows.counts.spans import cycle_spans, operation_spans
from flows.plan.notes import _drawn_again

MEASURED = {"samples": 2, "max_prompts": 4}


@pytest.mark.parametrize("algorithm", ["sft", "dpo", "ppo_critic"])
def test_what_no_reward_decides_is_planned_to_the_operation(algorithm: str, tmp_path: Path) -> None:
    config = tiny_config(algorithm, tmp_path, evaluation=MEASURED)
    spans = operation_spans(algorithm, config, 4)
    assert all(span.exact for span in spans.values())
    assert {name: span.most for name, span in spans.items()} == planned_operations(algorithm, config, 4)


@pytest.mark.parametrize("measured", [{"enabled": False}, MEASURED], ids=["unmeasured", "measured"])
def test_without_a_signal_no_step_is_taken_and_one_snapshot_serves_the_whole_run(
    measured: dict[str, Any], tmp_path: Path
) -> None:
    spans = operation_spans("grpo", tiny_config("grpo", tmp_path, cycles=3, evaluation=measured), 4)
    assert spans["optim_step"] == spans["forward_backward"] == Span(0, 3, 3)
    assert spans["save_weights_for_sampler"] == Span(1, *(2 * [4 if "samples" in measured else 3]))
    assert spans["sample"].exact
    with_reference = operation_spans("grpo", tiny_config("grpo", tmp_path, kl={"coef": 0.1}), 0)
    assert with_reference["save_weights_for_sampler"] == Span(2, 3, 3)
    assert with_reference["logprobs"] == Span.exactly(2 * 2 * 4)


@pytest.mark.parametrize(
    ("rule", "cycles"),
    [
        ({"zero_signal_streak": 1}, 2),
        ({"zero_signal_streak": 3}, 4),
        ({"zero_signal_streak": 99}, 11),
        ({"max_kl": 1.0}, 2),
        ({"min_mean_completion_tokens": 2.0}, 2),
        ({"min_gain_per_1000_operations": 0.1}, 8),
        ({"min_gain_per_1000_operations": 0.1, "zero_signal_streak": 5}, 6),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else str(value),
)
def test_at_least_a_run_ends_with_the_first_block_that_a_rule_may_end_it_after(
    rule: dict[str, Any], cycles: int, tmp_path: Path
) -> None:
    fields: dict[str, Any] = {"save_every": 2, "evaluation": {**MEASURED, "every": 2}}
    config = tiny_config("grpo", tmp_path, cycles=11, stop=rule, **fields)
    spans, whole = operation_spans("grpo", config, 4), planned_operations("grpo", config, 4)
    ended = planned_operations("grpo", tiny_config("grpo", tmp_path, cycles=cycles, **fields), 4)
    assert {name: span.most for name, span in spans.items()} == whole
    assert {name: spans[name].least for name in ("save_state", "sample", "export_lora")} == {
        name: ended[name] for name in ("save_state", "sample", "export_lora")
    }
    assert cycle_spans("grpo", config)["sample"].exact, "the mean cycle is one that is gone through"


@pytest.mark.parametrize("rule", StopConfig.model_fields)
def test_a_rule_of_stop_makes_the_least_smaller_none_is_forgotten(rule: str) -> None:
    long = GrpoConfig(cycles=40, save_every=2)
    assert fewest_cycles(long) == 40
    ruled = long.model_copy(update={"stop": StopConfig.model_validate({rule: 1})})
    assert fewest_cycles(ruled) <= 8


def test_what_is_drawn_again_lies_between_nothing_and_the_caps(tmp_path: Path) -> None:
    config = tiny_config("dapo", tmp_path, cycles=10, kl={"coef": 0.1}, resample={"max_operations": 5, "max_rounds": 3})
    spans = operation_spans("dapo", config, 0)
    # Of 2 groups of 4, 2/5 have equal rewards: 2 · (0.4 + 0.16 + 0.064) a cycle; one in 5 of 10⁴ needs a sixth draw.
    assert flat_share(4) == 0.4
    draws = draws_of(config, "typical")
    assert draws.operations == pytest.approx(1.248, rel=0.01)
    assert draws.steps == pytest.approx((1 - 0.4**4) ** 2, rel=0.01)
    assert spans["sample"] == Span(20, 32, 70)
    # Of 10 cycles 9.5 are expected to take a step, and of 9 all but the last to leave new weights to look at.
    assert spans["optim_step"] == spans["forward_backward"] == Span(0, 9, 10)
    assert spans["logprobs"] == Span(0, round(10 * 2 * 4 * draws.steps), 10 * (2 + 5) * 4)
    assert spans["save_weights_for_sampler"] == Span(1, round(1 + 9 * draws.steps + 1), 11)


def test_feedback_that_is_missing_asks_the_teacher_nothing(tmp_path: Path) -> None:
    spans = operation_spans("sdpo", tiny_config("sdpo", tmp_path), 0)
    assert spans["logprobs"] == Span(0, 16, 16)
    assert spans["save_weights_for_sampler"] == Span(2, 3, 3)


def test_the_mean_cycle_leaves_out_what_a_run_has_once(tmp_path: Path) -> None:
    config = tiny_config("opd", tmp_path, cycles=8, save_every=4, teacher={"state_id": "x"}, evaluation=MEASURED)
    spans = cycle_spans("opd", config)
    assert {name: span.typical for name, span in spans.items()} == {
        "forward_backward": 1,
        "logprobs": 8,
        "optim_step": 1,
        "sample": 2,
        "save_state": 0.25,
        "save_weights_for_sampler": 1,
    }


def test_a_plan_says_how_many_cycles_dapo_skips_where_these_are_more_than_a_few(tmp_path: Path) -> None:
    few: dict[str, Any] = {"groups_per_cycle": 8, "group_size": 3, "resample": {"max_rounds": 2}}
    drawn, skipped = _drawn_again(tiny_config("dapo", tmp_path, **few))
    assert drawn.startswith("Typically 6 groups a cycle are drawn again. ")
    assert "50% of groups of 3 have equal" in drawn
    assert "66% of the cycles are skipped" in skipped
    assert len(list(_drawn_again(tiny_config("dapo", tmp_path, **{**few, "group_size": 16})))) == 1
    partial: dict[str, Any] = {"max_rounds": 2, "on_exhausted": "train_partial"}
    assert len(list(_drawn_again(tiny_config("dapo", tmp_path, **{**few, "resample": partial})))) == 1
