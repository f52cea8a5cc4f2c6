"""The numbers of a plan, row by row, each with the words for its unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from algorithms.spans import Span, Spans, added
from flows.checks.plan import Plan
from flows.checks.plan_rates import Bill

PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
Told = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity.

    Args:
        group: what it is part of: "operations", "tokens", "compute".
        name: for people.
        told: a value in words.
        whole: of the run; None where it is not known.
        mean: of a cycle; None where a run has it once.
        total: whether it is the sum of its group.
    """

    group: str
    name: str
    told: Told
    whole: Span | None
    mean: Span | None
    total: bool = False


def rows(plan: Plan) -> list[Row]:
    """Everything a plan counts, in the order it is read."""
    bill = Bill(plan.operations, plan.tokens, plan.flops, plan.seconds, plan.cost)
    mean = plan.per_cycle
    return [
        *_counted("operations", bill.operations, mean.operations if mean else {}),
        *_counted("tokens", bill.tokens, mean.tokens if mean else {}),
        *_computed(bill, mean, plan.currency or ""),
        Row("compute", "memory", bytes_told, Span.exactly(plan.memory.total) if plan.memory else None, None),
    ]


def _counted(group: str, whole: Spans, mean: Mapping[str, Span]) -> Iterator[Row]:
    for name, span in whole.items():
        yield Row(group, name, amount, span, mean.get(name))
    yield Row(group, f"all {group}", amount, added(whole.values()), added(mean.values()), total=True)


def _computed(bill: Bill, mean: Bill | None, currency: str) -> Iterator[Row]:
    yield Row("compute", "FLOPs", scaled, bill.flops, mean.flops if mean else None)
    if bill.seconds:
        yield Row("compute", "time", seconds_told, bill.seconds, mean.seconds if mean else None)
    if bill.cost:
        yield Row("compute", f"cost, {currency}", money_told, bill.cost, mean.cost if mean else None)


def amount(value: float) -> str:
    """A count: whole where it is large or whole, else with two digits."""
    return f"{value:,.0f}" if value >= 100 or value == round(value) else f"{value:,.2f}"


def scaled(value: float) -> str:
    """Three digits and a decimal prefix: 1.2 P is 1.2 · 10^15."""
    power = 0
    while value >= 999.5 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {PREFIXES[power]}".rstrip()


def bytes_told(value: float) -> str:
    """Bytes in GB, 10^9 as GPUs are sold; small ones in MB."""
    return f"{value / 1e9:,.1f} GB" if value >= 1e8 else f"{value / 1e6:,.1f} MB"


def seconds_told(value: float) -> str:
    """A time in its own unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.1f} s" if value >= 1 else "< 1 s"


def money_told(value: float) -> str:
    """An amount of money: cents, or two digits of less than one."""
    return f"{value:,.2f}" if value >= 0.01 or value == 0 else f"{value:.2g}"
