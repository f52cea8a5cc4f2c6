"""The budget's gate by itself: what counts, what is kept in reserve, when it warns."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from flows.amounts import amount_told, enough_told
from flows.config import BudgetConfig
from flows.config.budget import OF_THE_MONTH, OF_THE_RUN
from flows.durable.budget import gate as budget_module
from flows.durable.budget.account import Account
from flows.durable.budget.gate import Budget
from flows.durable.budget.most_usage import most_usage
from flows.durable.budget.rest import Rest, enough
from flows.early_end import BudgetReachedError
from tasks.prices import Prices
from whitney.types import Operation, RunUsage, Usage

SAMPLE = {"prompt": {"token_ids": [1, 2, 3]}, "num_samples": 4, "sampling_params": {"max_tokens": 10}}
DATUMS = {"data": [{"input": {"token_ids": [1, 2]}}, {"input": {"token_ids": [3]}}]}
PRICES = Prices.model_validate(
    {
        "currency": "€",
        "operations": {"sample": 1.0, "export_lora": 2.0},
        "gpu": {"kind": "h100", "per_hour": 3600},
    }
)


class Clock:
    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def gate(clock: Clock | None = None, spent: RunUsage | None = None, **limits: Any) -> Budget:
    """With an account for the run and one for its project's month, in the order in which a run asks them."""
    config = BudgetConfig(prices=Path("prices.toml"), project="p", **limits)
    known: dict[str, Any] = {"spent": spent or RunUsage(), "prices": PRICES}
    month = Account("budget", "", config, OF_THE_MONTH, **known)
    return Budget([month, Account("budget", "", config, OF_THE_RUN, **known, seconds=clock or Clock())])


@pytest.fixture(autouse=True)
def warnings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    said: list[str] = []
    monkeypatch.setattr(budget_module, "warn", said.append)
    return said


@pytest.mark.parametrize("limit", range(1, 20))
def test_no_order_of_operations_passes_a_limit_and_the_export_always_fits(limit: int) -> None:
    budget, posted = gate(max_operations=limit), 0
    with suppress(BudgetReachedError):
        while True:
            budget.begin("a block", {"sample": 2}, saves=1)
            for kind in ("sample", "sample", "logprobs", "save_state"):  # one more than was planned
                budget.admit(kind, {})
                posted += 1
    with pytest.raises(BudgetReachedError):
        budget.admit("optim_step", {})
    budget.admit("export_lora", {})
    assert posted + 1 <= limit


def test_a_block_that_would_not_come_to_its_end_is_not_begun() -> None:
    budget = gate(max_operations=5)
    with pytest.raises(BudgetReachedError, match=r"max_operations = 5: 0 used; cycle 1 may need 6 more"):
        budget.begin("cycle 1", {"sample": 4}, saves=1)
    assert not budget.interrupted, "nothing of it was posted"


def test_a_block_of_more_tokens_or_minutes_than_are_left_is_not_begun() -> None:
    clock, likely, drawing = Clock(), Usage(trained_tokens=90), Usage(sampled_tokens=101)
    with pytest.raises(BudgetReachedError, match=r"max_tokens = 100: 0 used; cycle 1 may need 101 more"):
        gate(max_tokens=100).begin("cycle 1", {"sample": 4}, tokens=[likely, drawing], saves=1)
    gate(max_tokens=101).begin("cycle 1", {"sample": 4}, tokens=[likely, drawing], saves=1)
    clock.seconds = 60.0
    with pytest.raises(BudgetReachedError, match=r"max_minutes = 2: 1 used; cycle 2 may need 1.5 more"):
        gate(clock, max_minutes=2).begin("cycle 2", {"sample": 4}, seconds=90, saves=1)
    with pytest.raises(BudgetReachedError, match=r"max_cost = 100.00 €: 60.00 € used; cycle 2 may need 96.00 € more"):
        gate(clock, max_cost=100).begin("cycle 2", {"sample": 4}, seconds=90, saves=1)


def test_tokens_count_with_the_most_that_they_may_be_until_they_are_known() -> None:
    budget = gate(max_tokens=100)
    most = budget.admit("sample", SAMPLE)
    assert most == Usage(prefill_tokens=3, sampled_tokens=40)
    budget.admit("sample", SAMPLE)
    budget.settle(most, Usage(prefill_tokens=3, sampled_tokens=20))
    assert budget.share == pytest.approx(0.66)
    with pytest.raises(BudgetReachedError, match=r"max_tokens = 100: 66 used; sample may need 43 more"):
        budget.admit("sample", SAMPLE)


def test_an_answer_that_does_not_say_what_was_billed_counts_with_the_most() -> None:
    budget = gate(max_tokens=100)
    most = budget.admit("sample", SAMPLE)
    said = Operation.model_validate({"run_id": "r", "seq_id": 0, "kind": "sample", "status": "succeeded"})
    budget.settle(most, said.usage)
    assert budget.share == pytest.approx(0.43)
    budget.settle(most, Usage(prefill_tokens=3, sampled_tokens=0))
    assert budget.share == pytest.approx(0.03)


def test_what_earlier_attempts_were_billed_for_counts() -> None:
    budget = gate(max_operations=12, spent=RunUsage(operations={"sample": 7, "save_state": 3}))
    budget.admit("sample", SAMPLE)
    with pytest.raises(BudgetReachedError, match="11 used"):
        budget.admit("sample", SAMPLE)


def test_an_export_that_nothing_is_left_for_is_what_the_gate_tells_of() -> None:
    budget = gate(max_operations=3, spent=RunUsage(operations={"sample": 2, "export_lora": 1}))
    with pytest.raises(BudgetReachedError, match="cycle 2 may need 5 more, its end included"):
        budget.begin("cycle 2", {"sample": 3}, saves=1)
    with pytest.raises(BudgetReachedError, match=r"max_operations = 3: 3 used; the export needs 1 more$") as ended:
        budget.admit("export_lora", {})
    assert budget.reached is ended.value


def test_money_counts_operations_and_time_with_the_export_in_reserve() -> None:
    clock = Clock()
    budget = gate(clock, max_cost=10.0)
    for _ in range(8):
        budget.admit("sample", SAMPLE)
    with pytest.raises(BudgetReachedError, match=r"max_cost = 10.00 €: 8.00 € used; sample may need 3.00 € more"):
        budget.admit("sample", SAMPLE)
    clock.seconds = 3600.0  # an hour of an H100 is what the export has no say in
    budget.admit("export_lora", {})


def test_time_that_is_over_ends_a_run_and_its_export_is_let_through() -> None:
    clock = Clock()
    budget = gate(clock, max_minutes=2)
    clock.seconds = 119.0
    budget.admit("sample", SAMPLE)
    clock.seconds = 120.0
    with pytest.raises(BudgetReachedError, match="max_minutes = 2: 2 used"):
        budget.admit("sample", SAMPLE)
    budget.admit("export_lora", {})


def test_a_warning_comes_once_where_the_share_is_used_that_was_asked_for(warnings: list[str]) -> None:
    budget = gate(max_operations=11, warn_at=0.5)
    for _ in range(9):
        budget.admit("sample", SAMPLE)
    assert warnings == ["55% of budget.max_operations = 11 is used (6)"]


def test_a_limit_that_is_raised_opens_the_gate_again_and_by_nothing_is_lifted() -> None:
    budget = gate(max_operations=2, max_operations_per_month=50)
    for more in (1, 0):
        budget.begin("a block", {})
        budget.admit("sample", SAMPLE)
        with pytest.raises(BudgetReachedError):
            budget.admit("sample", SAMPLE)
        budget.reopen(more)
    told = budget.told()
    assert told is not None
    assert list(told["used"]) == ["budget.max_operations_per_month"], "that of the month is another's of the same name"


@pytest.mark.parametrize(
    ("kind", "payload", "most"),
    [
        ("logprobs", {"input": {"token_ids": [1, 2]}}, Usage(prefill_tokens=2)),
        ("forward", DATUMS, Usage(prefill_tokens=3)),
        ("forward_backward", DATUMS, Usage(trained_tokens=3)),
        ("optim_step", {}, Usage()),
        ("sample", {"prompt": "not as the wire has it"}, Usage()),
        ("forward", {"data": 7}, Usage()),
    ],
)
def test_an_operation_may_be_billed_for_what_its_payload_says(
    kind: str, payload: Mapping[str, Any], most: Usage
) -> None:
    assert most_usage(kind, payload) == most


def test_without_a_limit_everything_passes_and_nothing_is_told() -> None:
    budget = Budget()
    budget.begin("a block", {"sample": 10**9})
    budget.admit("sample", SAMPLE)
    assert (budget.told(), budget.share) == (None, None)


@pytest.mark.parametrize(
    ("table", "told"),
    [
        ({"max_cost": 3}, "max_cost needs prices"),
        ({"max_operations_per_month": 3}, "max_operations_per_month needs project"),
        ({"max_operations": 0}, "greater than or equal to 1"),
        ({"max_minutes": float("inf")}, "finite number"),
        ({"max_tokens": 10**15 + 1}, "less than or equal to 1000000000000000"),
        ({"on_exceed": "ignore"}, "'stop' or 'pause'"),
    ],
)
def test_a_budget_that_makes_no_sense_is_refused(table: dict[str, Any], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        BudgetConfig.model_validate(table)


def test_the_table_that_the_documentation_shows_is_taken() -> None:
    text = Path("docs/reliability.md").read_text(encoding="utf-8")
    table = tomllib.loads(text.partition("## Budgets")[2].partition("```toml\n")[2].partition("```")[0])
    assert BudgetConfig.model_validate(table["budget"]).max_tokens == 2_000_000


@pytest.mark.parametrize(
    ("kind", "amount", "told"),
    [
        ("operations", 1200.0, "1,200"),
        ("tokens", 50149.5, "50,150"),
        ("tokens", 0.1 + 0.2 + 2.7, "3"),
        ("cost", 9.29833428e-08, "0.000000093 €"),
        ("cost", 1234.5678, "1,234.57 €"),
        ("minutes", 0.085636, "0.09"),
        ("minutes", 1e-6, "0.000001"),
        ("minutes", 90.0, "90"),
        ("minutes", 50149.7, "50,149.7"),
    ],
)
def test_amounts_are_told_as_people_read_them(kind: str, amount: float, told: str) -> None:
    assert amount_told(kind, amount, "€") == told


@pytest.mark.parametrize(
    ("kind", "amount", "told"),
    [
        ("cost", 0.014201, "0.0143 €"),
        ("cost", 0.1 + 0.2, "0.30 €"),
        ("cost", 1234.561, "1,234.57 €"),
        ("cost", 9.29833428e-08, "0.000000093 €"),
        ("tokens", 50149.5, "50,150"),
    ],
)
def test_what_a_limit_may_be_set_to_is_never_rounded_down(kind: str, amount: float, told: str) -> None:
    assert enough_told(kind, amount, "€") == told


def test_more_money_is_offered_in_digits_that_tell_and_not_by_the_cent() -> None:
    prices = Prices.model_validate({"operations": {"sample": 0.001}})
    config = BudgetConfig(prices=Path("prices.toml"), max_cost=0.004)
    account = Account("budget", "", config, OF_THE_RUN, spent=RunUsage(operations={"sample": 4}), prices=prices)
    reached = BudgetReachedError("budget.max_cost", limit=0.004, used=0.004, needed=0.001, what="cycle 2")
    assert enough(reached, account, Rest(Counter({"sample": 5}))) == 0.009
