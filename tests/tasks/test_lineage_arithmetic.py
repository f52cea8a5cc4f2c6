from __future__ import annotations

from typing import Any

import pytest

from tasks.lineage import billed_by_attempt, breaks, chain, redone
from whitney.labels import ATTEMPT
from whitney.types import Run, RunUsage, Session


def state(block: int, cycle: int, **changes: Any) -> dict[str, Any]:
    parent = f"st_{block - 1}" if block else None
    return {
        "block": block,
        "cycle": cycle,
        "state_id": f"st_{block}",
        "parent_state_id": parent,
        "run_id": "run_1",
        "attempt": 1,
    } | changes


def row(cycle: int, samples: int = 4) -> dict[str, float]:
    return {"cycle": cycle, "operations/sample": samples, "tokens/sampled": 10 * samples, "loss": 0.5}


def session(attempt: str, *usages: RunUsage) -> Session:
    runs = [Run(run_id=f"run_{place}", status="finished", usage=usage) for place, usage in enumerate(usages)]
    return Session(session_id=f"ses_{attempt}", status="closed", labels={ATTEMPT: attempt}, runs=runs)


STATES = [state(0, 1), state(1, 3, attempt=2), state(2, 4, attempt=2)]
METRICS = [row(cycle) for cycle in range(5)]


def test_a_chain_knows_its_cycles_and_what_each_block_cost() -> None:
    links = chain(STATES, METRICS)
    assert [(link.label, link.attempt, link.usage.operations, link.usage.sampled_tokens) for link in links] == [
        ("1-2", 1, {"sample": 8}, 80),
        ("3-4", 2, {"sample": 8}, 80),
        ("5", 2, {"sample": 4}, 40),
    ]
    assert breaks(links, METRICS) == []
    assert breaks([], []) == []


@pytest.mark.parametrize(
    ("states", "metrics", "complaint"),
    [
        ([STATES[0], STATES[2]], METRICS, "block 1 is missing: block 2 is in its place"),
        ([STATES[0], state(1, 3, parent_state_id="st_other")], METRICS[:4], "was trained from st_other, not from st_0"),
        ([STATES[0], state(1, 3, parent_state_id=None)], METRICS[:4], "was trained from the beginning, not from st_0"),
        ([STATES[0], state(1, 1)], METRICS[:2], "block 1 ends in cycle 2, which an earlier block has trained"),
        ([state(0, 1, parent_state_id="st_x")], METRICS[:2], "block 0 was trained from st_x, not from the beginning"),
        (STATES, METRICS[:4], "cycle 5 is in the chain of states 1 times, in the metrics 0"),
        (STATES, [*METRICS, row(4)], "cycle 5 is in the chain of states 1 times, in the metrics 2"),
        (STATES[:2], METRICS, "cycle 5 is in the chain of states 0 times, in the metrics 1"),
    ],
)
def test_a_chain_that_is_broken_says_where(
    states: list[dict[str, Any]], metrics: list[dict[str, float]], complaint: str
) -> None:
    assert any(complaint in one for one in breaks(chain(states, metrics), metrics))


def test_what_was_billed_is_summed_up_by_attempt_over_all_sessions_and_runs() -> None:
    policy, teacher = RunUsage(operations={"sample": 3}, sampled_tokens=7), RunUsage(operations={"logprobs": 2})
    bills = billed_by_attempt([session("2", policy), session("1", policy, teacher), session("1", teacher)])
    assert bills == {
        1: RunUsage(operations={"logprobs": 4, "sample": 3}, sampled_tokens=7),
        2: RunUsage(operations={"sample": 3}, sampled_tokens=7),
    }


def test_redone_is_what_no_part_of_the_run_accounts_for_and_which_attempt_paid() -> None:
    billed = {
        1: RunUsage(operations={"sample": 7, "optim_step": 1}, sampled_tokens=1070),
        2: RunUsage(operations={"sample": 4}, sampled_tokens=40),
    }
    found = redone(billed, [(1, row(0)), (2, row(1))])
    assert found.total == RunUsage(operations={"optim_step": 1, "sample": 3}, sampled_tokens=1030)
    assert str(found) == "4 operations, 1,030 tokens (attempt 1: 4 operations, 1,030 tokens)"
    assert str(redone({1: billed[2]}, [(1, row(0))])) == "0 operations, 0 tokens"


def test_redone_does_not_blame_an_attempt_where_the_record_does_not_say_who_paid() -> None:
    found = redone({1: RunUsage(operations={"sample": 9})}, [(1, row(0)), (None, row(1))])
    assert (found.operations, found.by_attempt) == (1, {})


def test_a_record_of_more_than_was_billed_shows_below_zero() -> None:
    found = redone({1: RunUsage(operations={"sample": 1}, sampled_tokens=40)}, [(1, row(0))])
    assert found.total.operations == {"sample": -3}
