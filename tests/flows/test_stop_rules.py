"""When a run stops before its last cycle, decided by the metrics alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, metrics
from tiny_configs import tiny_config

import flows
from flows.config import StopConfig
from flows.durable.stopping import stop_reason
from flows.parts.step import TrainingDivergedError, reported
from gateway.launch import GatewayProcess

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


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "NaN"])
def test_a_step_that_is_no_number_is_a_diverged_training(name: str, value: Any) -> None:
    with pytest.raises(TrainingDivergedError, match=rf"the step's {name} is .*: training has diverged"):
        reported({"loss": 1.0, "grad_norm": 1.0, name: value})


async def test_a_stopped_run_keeps_the_block_it_stopped_after_and_says_why(
    local: GatewayProcess, taught: Taught, tmp_path: Path
) -> None:
    worthless = [{"function": "length", "weight": 0.0, "arguments": {"target": 3}}]
    config = tiny_config("grpo", tmp_path, rewards=worthless, cycles=6, save_every=1, stop={"zero_signal_streak": 2})
    summary = await flows.grpo(config)
    assert len(metrics(summary)) == summary["cycles"] == 2
    assert summary["stopped"] == "no group had a gradient in 2 cycles in a row (stop.zero_signal_streak)"
    assert Path(summary["adapter"]).is_dir()
    assert summary["open_sessions"] == 0
