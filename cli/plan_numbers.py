"""The numbers of a plan, row by row, each with the words for its unit."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from algorithms.spans import Span, Spans, added
from flows.plan.bill import Bill
from flows.plan.plan import Plan
from tasks.money import money

IN_A_RUN = (
    "save_weights_for_sampler",
    "sample",
    "logprobs",
    "forward",
    "forward_backward",
    "optim_step",
    "save_state",
    "export_lora",
)
"""Operations in the order in which a cycle asks for them."""

COST_OF = {"operations": "cost of operations", "tokens": "cost of tokens", "gpu_time": "cost of GPU time"}
ENDINGS = {1: "st", 2: "nd", 3: "rd"}
PREFIXES = ("", "k", "M", "G", "T", "P", "E", "Z")
NOISE = 1e-6
NEXT_TO_NOTHING = 0.0001
"""Money below which the digits would be many and tell nobody anything."""
Told = Callable[[float], str]


@dataclass(frozen=True, slots=True)
class Row:
    """One quantity.

    Args:
        group: what it is part of: "operations", "tokens", "compute", "cost".
        name: for people.
        told: a value in words.
        whole: of the run; None where it is not known.
        mean: of a cycle; None where a run has it once.
        total: whether it is the sum of its group.
        rhythm: in words, where it does not come in every cycle: "every 6th".
        lasts: whether it is held and not used up, so that cycles do not add up.
        beside_a_rhythm: whether it is the sum of rows one of which has a rhythm in place of a number.
    """

    group: str
    name: str
    told: Told
    whole: Span | None
    mean: Span | None
    total: bool = False
    rhythm: str | None = None
    lasts: bool = False
    beside_a_rhythm: bool = False

    def once(self, cycles: int) -> str:
        """What of a typical run is beside its cycles, in words; nothing where that is nothing, or not known."""
        if self.whole is None or self.rhythm or self.lasts:
            return ""
        beside = self.whole.typical - (self.mean.typical * cycles if self.mean else 0.0)
        return self.told(beside) if beside > NOISE * self.whole.typical else ""

    def in_cycle(self) -> str:
        """What the mean cycle has, in words; of a sum nothing where what stands above it does not add up to it."""
        if self.beside_a_rhythm:
            return ""
        return self.rhythm or ("" if self.mean is None else self.told(self.mean.typical))


def rows(plan: Plan) -> list[Row]:
    """Everything a plan counts, in the order it is read."""
    bill, mean = plan.bill, plan.per_cycle
    seldom = {"save_state": f"every {ordinal(plan.save_every)}"} if mean and plan.save_every > 1 else {}
    kinds = sorted(bill.operations, key=place_in_a_run)
    operations = {kind: bill.operations[kind] for kind in kinds}
    return [
        *_counted("operations", operations, mean.operations if mean else {}, seldom),
        *_counted("tokens", bill.tokens, mean.tokens if mean else {}, {}),
        *_computed(plan, mean),
        *_cost(bill, mean, plan.currency or ""),
    ]


def _counted(group: str, whole: Spans, mean: Mapping[str, Span], seldom: Mapping[str, str]) -> Iterator[Row]:
    for name, span in whole.items():
        yield Row(group, name, amount, span, mean.get(name), rhythm=seldom.get(name))
    whole_sum, mean_sum = added(whole.values()), added(mean.values())
    yield Row(group, f"all {group}", amount, whole_sum, mean_sum, total=True, beside_a_rhythm=bool(seldom))


def _computed(plan: Plan, mean: Bill | None) -> Iterator[Row]:
    yield Row("compute", "FLOPs", scaled, plan.flops, mean.flops if mean else None)
    if plan.seconds:
        where = plan.assumptions.gpu
        yield Row("compute", f"time on {where}", seconds_told, plan.seconds, mean.seconds if mean else None)
    held = Span.exactly(plan.memory.total) if plan.memory else None
    yield Row("compute", "memory at its peak", bytes_told, held, None, lasts=True)


def _cost(bill: Bill, mean: Bill | None, currency: str) -> Iterator[Row]:
    """What each thing costs, where several do; and all of it."""
    if not bill.cost:
        return
    if len(bill.cost_parts) > 1:
        for name, span in bill.cost_parts.items():
            part = mean.cost_parts.get(name) if mean else None
            yield Row("cost", f"{COST_OF[name]}, {currency}", money_told, span, part)
        yield Row("cost", f"all cost, {currency}", money_told, bill.cost, mean.cost if mean else None, total=True)
    else:
        what = COST_OF[next(iter(bill.cost_parts))]
        yield Row("cost", f"{what}, {currency}", money_told, bill.cost, mean.cost if mean else None, total=True)


def place_in_a_run(kind: str) -> int:
    """Where an operation stands; whatever else there is comes last, as it was."""
    return IN_A_RUN.index(kind) if kind in IN_A_RUN else len(IN_A_RUN)


def ordinal(number: int) -> str:
    """ "6th", "22nd"."""
    teens = 10 < number % 100 < 20
    return f"{number}{'th' if teens else ENDINGS.get(number % 10, 'th')}"


def amount(value: float) -> str:
    """A count: whole where it is whole or large, else with three digits."""
    near = round(value)
    return f"{near:,}" if value >= 100 or abs(value - near) <= NOISE * max(1.0, value) else f"{value:.3g}"


def scaled(value: float) -> str:
    """Three digits and a decimal prefix: 1.2 P is 1.2 · 10^15."""
    power = 0
    while value >= 999.5 and power < len(PREFIXES) - 1:
        value, power = value / 1000, power + 1
    return f"{value:.3g} {PREFIXES[power]}".rstrip()


def bytes_told(value: float) -> str:
    """Bytes in GB, 10^9 as GPUs are sold; small ones in MB; a dash for none."""
    if not value:
        return "–"
    return f"{value / 1e9:,.1f} GB" if value >= 1e8 else f"{value / 1e6:,.1f} MB"


def seconds_told(value: float) -> str:
    """A time in its own unit."""
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if value >= 2 * size:
            return f"{value / size:,.1f} {unit}"
    return f"{value:,.1f} s" if value >= 1 else "< 1 s"


def money_told(value: float) -> str:
    """An amount of money; of next to nothing only that it is."""
    return money(value) if value >= NEXT_TO_NOTHING or value == 0 else f"< {NEXT_TO_NOTHING}"
