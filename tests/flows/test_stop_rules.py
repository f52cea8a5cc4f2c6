"""When a run stops before its last cycle, decided by the metrics alone."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flow_probes import metrics
from tiny_configs import SHORT, tiny_config

import flows
from algorithms.scaling import SigmoidCurve
from cli.summary import summary_lines
from flows.config import StopConfig
from flows.durable.stopping import stop_reason
from flows.parts.step import TrainingDivergedError, reported
from gateway.launch import GatewayProcess
from tasks.prices import Prices

TRAINED, IDLE = {"datums": 4}, {"datums": 0}


@pytest.mark.parametrize(
    ("rules", "rows", "said"),
    [
        ({}, [IDLE] * 9, None),
        ({"zero_signal_streak": 2}, [], None),
        ({"zero_signal_streak": 2}, [IDLE, IDLE, TRAINED, IDLE], None),
        ({"zero_signal_streak": 2}, [TRAINED, IDLE, IDLE], "no group had a gradient in 2 cycles in a row"),
        ({"max_kl": 0.5}, [{**TRAINED, "kl_reference": 0.5}], None),
        ({"max_kl": 0.5}, [{**TRAINED, "kl_reference": 0.6}, TRAINED], None),
        ({"max_kl": 0.5}, [{**TRAINED, "kl_reference": 0.6}], "kl_reference is 0.6, above stop.max_kl = 0.5"),
        (
            {"max_kl": 0.5},
            [{**TRAINED, "kl_reference": 0.1, "kl_sampler_trainer_k3": 0.6}],
            None,
        ),
        ({"max_kl": 0.5}, [{**TRAINED, "kl_sampler_trainer_k3": 0.6}], "kl_sampler_trainer_k3 is 0.6, above"),
        (
            {"max_mean_completion_tokens": 100},
            [{**TRAINED, "completion_tokens_mean": 100.5}],
            "completion_tokens_mean is 100.5, above stop.max_mean_completion_tokens = 100.0",
        ),
        (
            {"min_mean_completion_tokens": 2},
            [{**TRAINED, "completion_tokens_mean": 1.5}],
            "completion_tokens_mean is 1.5, below stop.min_mean_completion_tokens = 2.0",
        ),
        ({"min_mean_completion_tokens": 2}, [{**TRAINED, "completion_tokens_mean": 2.0}], None),
    ],
)
def test_a_rule_that_is_met_says_which_and_by_how_much(
    rules: dict[str, Any], rows: list[dict[str, float]], said: str | None
) -> None:
    reason = stop_reason(StopConfig(**rules), rows)
    assert reason is None if said is None else reason is not None and said in reason


SPENT = {"operations/sample": 8, "operations/forward_backward": 1, "operations/optim_step": 1, "seconds/cycle": 36}
TOKENS = {"tokens/prefill": 1000, "tokens/sampled": 1000, "tokens/trained": 2000}
PRICES = Prices(operations={"sample": 0.1}, tokens={"trained": 100.0})


def learned(cycles: int, *, midpoint: float, steepness: float = 2.0) -> list[dict[str, float]]:
    """Rows of a run whose mean reward rises from 0.1 to 0.8, with a little noise, for 10 operations a cycle."""
    rng, curve = np.random.default_rng(0), SigmoidCurve(0.1, 0.8, steepness, midpoint)
    rewards = [rng.binomial(512, curve.reward(cycle)) / 512 for cycle in range(1, cycles + 1)]
    return [{**TRAINED, **SPENT, **TOKENS, "cycle": cycle, "reward_mean": one} for cycle, one in enumerate(rewards)]


@pytest.mark.parametrize(
    ("rows", "stops"),
    [
        (learned(40, midpoint=4, steepness=3), True),
        (learned(20, midpoint=20), False),
        (learned(9, midpoint=40), False),
        (learned(7, midpoint=1, steepness=3), False),
    ],
    ids=["on a plateau", "while it rises", "at its foot", "too early to tell"],
)
def test_a_run_stops_where_even_the_upper_end_of_the_forecast_gain_is_not_worth_the_cost(
    rows: list[dict[str, float]], stops: bool
) -> None:
    by_operations = StopConfig(min_gain_per_1000_operations=0.2)
    reason = stop_reason(by_operations, rows, reward_range=(0, 1))
    assert (reason is not None) == stops
    # A cycle is 10 operations, 8 of them at 0.1, and 2,000 trained tokens at 100 a million: 1.00 a cycle.
    by_money = StopConfig(min_gain_per_cost=0.002)
    paid = stop_reason(by_money, rows, reward_range=(0, 1), prices=PRICES)
    assert (paid is not None) == stops
    if stops:
        assert "per 1,000 operations, below stop.min_gain_per_1000_operations = 0.2" in str(reason)
        assert "per USD, below stop.min_gain_per_cost = 0.002" in str(paid)
        assert stop_reason(StopConfig(min_gain_per_1000_operations=1e-9), rows, reward_range=(0, 1)) is None


def test_a_retry_comes_to_the_verdict_of_the_run_and_no_forecast_is_made_without_the_rule() -> None:
    rows, rule = learned(40, midpoint=4, steepness=3), StopConfig(min_gain_per_1000_operations=0.2)
    cycle = next(n for n in range(1, 41) if stop_reason(rule, rows[:n], reward_range=(0, 1)))
    again = [stop_reason(rule, rows[:n], reward_range=(0, 1)) for n in range(1, cycle + 1)]
    assert [reason is not None for reason in again] == [False] * (cycle - 1) + [True]
    assert again[-1] == stop_reason(rule, json.loads(json.dumps(rows[:cycle])), reward_range=(0, 1))
    assert stop_reason(StopConfig(), rows, reward_range=(0, 1)) is None


def test_a_rule_about_the_gain_is_refused_where_nothing_can_be_forecast_or_nothing_costs(tmp_path: Path) -> None:
    free = tmp_path / "free.toml"
    free.write_text('currency = "EUR"\n')
    own = [{"function": "mine:reward"}, {"function": "number"}]
    refusals: list[tuple[str, dict[str, Any], str]] = [
        ("grpo", {"cycles": 8}, "a forecast needs 8 cycles, cycles = 8"),
        ("grpo", {"rewards": own}, "needs a reward whose range is known, and that of mine:reward is not"),
        ("sft", {}, "needs a reward whose range is known, and this run has none"),
        ("grpo", {"stop": {"min_gain_per_cost": 1}}, "stop.min_gain_per_cost = 1 needs budget.prices"),
        ("grpo", {"stop": {"min_gain_per_cost": 1}, "budget": {"prices": str(free)}}, "nothing costs anything"),
        ("grpo", {"stop": {"min_gain_per_cost": 1}, "budget": {"prices": "no.toml"}}, "'no.toml': no such file"),
    ]
    for algorithm, fields, said in refusals:
        settings = {"cycles": 40, "stop": {"min_gain_per_1000_operations": 1}, **fields}
        with pytest.raises(ValueError, match=re.escape(said)):
            tiny_config(algorithm, tmp_path, **settings).check()
    tiny_config("grpo", tmp_path, cycles=40, stop={"min_gain_per_1000_operations": 1}).check()


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "NaN"])
def test_a_step_that_is_no_number_is_a_diverged_training(name: str, value: Any) -> None:
    with pytest.raises(TrainingDivergedError, match=rf"the step's {name} is .*: training has diverged"):
        reported({"loss": 1.0, "grad_norm": 1.0, name: value})


async def test_a_run_that_has_learned_what_it_can_keeps_the_block_it_stopped_after_and_says_why(
    local: GatewayProcess, tmp_path: Path
) -> None:
    rule = {"min_gain_per_1000_operations": 1.0}
    config = tiny_config(
        "grpo",
        tmp_path,
        rewards=SHORT,
        group_size=8,
        cycles=60,
        save_every=4,
        optimizer={"learning_rate": 0.02, "schedule": "constant"},
        stop=rule,
    )
    summary = await flows.grpo(config)
    rows = metrics(summary)
    assert len(rows) == summary["cycles"] < 60
    assert summary["cycles"] % 4 == 0, "where a block ends, because that is what is saved"
    assert summary["stopped"] == stop_reason(StopConfig(**rule), rows, reward_range=(0, 1))
    assert str(summary["stopped"]).startswith("as much compute again would gain ")
    assert summary["forecast"]["gain"]["high"] < 1.0 * sum(summary["operations"].values()) / 1000
    assert any(line.startswith("Forecast:  reward ") for line in summary_lines(summary))
    assert Path(summary["adapter"]).is_dir()
    assert summary["open_sessions"] == 0
