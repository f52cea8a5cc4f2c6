"""Dynamic sampling: rounds that are billed and visible, declared caps, and every completion accounted for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import mean, pstdev
from typing import Any

import pytest
from flow_probes import (
    Taught,
    count_tasks,
    descendants,
    first_attempt,
    ledger,
    lines,
    lose_answer,
    metrics,
    retry,
    sent_payloads,
    sessions_of,
)
from tiny_configs import tiny_config

import flows
from flows.config import FlowConfig
from flows.resample import ResampleExhaustedError
from gateway.launch import GatewayProcess

# Worth nothing whatever is said: no group ever has a signal.
WORTHLESS = [{"function": "length", "weight": 0.0, "arguments": {"target": 3}}]


@pytest.fixture
async def dapo(local: GatewayProcess, taught: Taught, tmp_path: Path) -> Callable[..., FlowConfig]:
    """Configurations of DAPO that start where the tiny model answers and stops."""
    state_id = (await taught("local"))["state_id"]

    def config(**fields: Any) -> FlowConfig:
        return tiny_config("dapo", tmp_path / "runs", state_id=state_id, **fields)

    return config


def samples(summary: dict[str, Any]) -> list[list[dict[str, Any]]]:
    """Everything that was drawn, cycle by cycle."""
    return [lines(path) for path in sorted((Path(summary["run_folder"]) / "samples").glob("cycle-*.jsonl"))]


def assert_every_completion_is_accounted_for(summary: dict[str, Any]) -> None:
    for row, drawn in zip(metrics(summary), samples(summary), strict=True):
        dropped = sum(count for key, count in row.items() if key.startswith("dropped/"))
        assert len(drawn) == row["datums"] + dropped, row


async def test_rounds_are_visible_billed_freshly_seeded_and_leave_no_completion_uncounted(
    dapo: Callable[..., FlowConfig], local: GatewayProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    payloads = sent_payloads(monkeypatch)
    # Two tokens are a digit and the end of the turn: whatever is longer is cut off, and dropped.
    summary = await flows.dapo(dapo(sampling={"max_tokens": 2}, resample={"max_rounds": 4, "on_exhausted": "skip"}))
    rows = metrics(summary)
    assert_every_completion_is_accounted_for(summary)
    again = sum(row["resample_operations"] for row in rows)
    assert again > 0
    assert sum(row["dropped/overlong"] for row in rows) > 0
    assert ledger(local, summary["flow_run_id"])["policy"]["sample"] == 4 + again
    seeds = [payload["sampling_params"]["seed"] for kind, payload in payloads if kind == "sample"]
    assert len(set(seeds)) == len(seeds) == 4 + again
    rounds = [run for run in await descendants(summary["flow_run_id"]) if run.name.startswith("resample, cycle ")]
    assert sorted(run.name for run in rounds) == ["resample, cycle 1", "resample, cycle 2"]
    assert await count_tasks(rounds, "sample group ", 4) == 4
    assert await count_tasks(rounds, "resample ", again) == again


@pytest.mark.parametrize(
    ("resample", "rounds", "operations"),
    [({"max_rounds": 2}, 2, 4), ({"max_rounds": 9, "max_operations": 3}, 2, 3), ({"max_rounds": 0}, 0, 0)],
)
async def test_a_cap_that_is_reached_skips_the_cycle_on_the_record_and_the_run_goes_on(
    resample: dict[str, Any], rounds: int, operations: int, dapo: Callable[..., FlowConfig]
) -> None:
    summary = await flows.dapo(dapo(rewards=WORTHLESS, resample={**resample, "drop_overlong": False}))
    for row in metrics(summary):
        assert (row["resample_rounds"], row["resample_operations"]) == (rounds, operations)
        assert (row["skipped/resample_exhausted"], row["datums"]) == (1, 0)
        assert row["dropped/zero_signal"] == 4 * (2 + operations)
    assert_every_completion_is_accounted_for(summary)
    assert "optim_step" not in summary["operations"]
    assert summary["open_sessions"] == 0


async def test_the_place_in_the_data_moves_on_by_what_was_drawn_and_same_prompt_stays(
    dapo: Callable[..., FlowConfig],
) -> None:
    moving = await flows.dapo(dapo(rewards=WORTHLESS, resample={"max_rounds": 2}))
    asked = [list(dict.fromkeys(row["id"] for row in drawn)) for drawn in samples(moving)]
    assert [row["prompts_drawn"] for row in metrics(moving)] == [6, 6]
    assert [len(prompts) for prompts in asked] == [6, 6]
    assert not set(asked[0]) & set(asked[1]), "the second cycle begins behind what the first one used up"
    staying = await flows.dapo(dapo(rewards=WORTHLESS, resample={"max_rounds": 2, "zero_signal": "same_prompt"}))
    assert [row["prompts_drawn"] for row in metrics(staying)] == [2, 2]
    assert list(dict.fromkeys(row["id"] for row in samples(staying)[0])) == asked[0][:2]
    assert [Counter(row["id"] for row in drawn) for drawn in samples(staying)] == [
        dict.fromkeys(asked[0][:2], 12),
        dict.fromkeys(asked[0][2:4], 12),
    ]
    assert_every_completion_is_accounted_for(staying)


async def test_a_retry_goes_on_at_the_place_in_the_data_where_an_undisturbed_run_would_be(
    dapo: Callable[..., FlowConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"sampling": {"max_tokens": 2}, "save_every": 1, "resample": {"max_rounds": 3}}
    undisturbed = await flows.dapo(dapo(**options, name="undisturbed"))
    mend = lose_answer(monkeypatch, "save_state", 2)
    flow_run_id, failed = await first_attempt(flows.dapo, dapo(**options))
    assert failed.is_failed()
    mend()
    retried = await (await retry(flows.dapo, flow_run_id)).result()
    assert retried["attempt"] == 2
    assert [row["prompts_drawn"] for row in metrics(retried)] == [row["prompts_drawn"] for row in metrics(undisturbed)]
    assert samples(retried) == samples(undisturbed)
    assert retried["adapter_sha256"] == undisturbed["adapter_sha256"]


async def test_a_batch_that_stays_incomplete_may_be_trained_in_part_or_fail_the_run(
    dapo: Callable[..., FlowConfig], tmp_path: Path
) -> None:
    data = tmp_path / "data.jsonl"
    hopeless = {"prompt": "9" * 600, "answer": "9"}  # fills the context: no reply, however often it is asked
    data.write_text("".join(json.dumps(row) + "\n" for row in ({"prompt": "3 + 4 = ?", "answer": "7"}, hopeless)))
    options: dict[str, Any] = {
        "data": {"source": str(data), "heldout_fraction": 0},
        "cycles": 1,
        "group_size": 8,
        "sampling": {"max_tokens": 8},
    }
    part = {"max_rounds": 0, "target_group_size": 2}
    partial = await flows.dapo(dapo(**options, resample={**part, "on_exhausted": "train_partial"}))
    (row,) = metrics(partial)
    assert row["datums"] > 0
    assert row["prompts_skipped"] == 1
    assert "skipped/resample_exhausted" not in row
    assert_every_completion_is_accounted_for(partial)
    skipped = await flows.dapo(dapo(**options, resample={**part, "on_exhausted": "skip"}))
    (left,) = metrics(skipped)
    assert left["dropped/resample_exhausted"] == row["datums"], "good completions that nobody trained on"
    assert_every_completion_is_accounted_for(skipped)
    flow_run_id, state = await first_attempt(
        flows.dapo, dapo(**options, resample={**part, "on_exhausted": "fail"}, name="failing")
    )
    with pytest.raises(ResampleExhaustedError, match=r"cycle 1: 1 of 2 groups are incomplete after 0 rounds"):
        await state.result()
    assert [session.status for session in await sessions_of(flow_run_id)] == ["closed"]


async def test_soft_overlong_punishes_the_last_tokens_of_groups_that_have_a_signal_without_it(
    dapo: Callable[..., FlowConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Lmax 4, Lc 2: up to 2 tokens are free, 3 cost half a reward, 4 a whole one.
    penalty = {1: 0.0, 2: 0.0, 3: -0.5, 4: -1.0}
    resample = {"soft_overlong_cache": 2, "drop_overlong": False, "max_rounds": 0, "on_exhausted": "train_partial"}
    options: dict[str, Any] = {"cycles": 1, "group_size": 8, "sampling": {"max_tokens": 4}, "resample": resample}
    payloads = sent_payloads(monkeypatch)
    summary = await flows.dapo(dapo(**options, aggregation="sum"))
    (drawn,) = samples(summary)
    expected: list[float] = []
    for group in (drawn[:8], drawn[8:]):
        if len({row["reward"] for row in group}) > 1:
            shaped = [row["reward"] + penalty[row["tokens"]] for row in group]
            expected += [(reward - mean(shaped)) / pstdev(shaped) for reward in shaped]
    assert expected
    assert {2, 4} <= {row["tokens"] for row in drawn}
    (step,) = [
        payload for kind, payload in payloads if kind == "forward_backward" and payload["loss_function"] == "ppo"
    ]
    sent = [datum["loss_inputs"]["advantages"]["values"][-1] for datum in step["data"]]
    assert sent == pytest.approx(expected, abs=1e-5)
    flat = await flows.dapo(dapo(**options, rewards=WORTHLESS))
    assert [row["datums"] for row in metrics(flat)] == [0], "a length alone is no signal"
