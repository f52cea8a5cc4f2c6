"""Gates: whether what was measured on held-out examples is good enough to go on with.

eval.accuracy >= 0.8                        after this stage
before.loss < 2                             before it
eval.accuracy >= 0.9 * rl.eval.accuracy     a student that keeps nine tenths of what the stage "rl" has reached
eval.pass@4 > eval.accuracy
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass

from algorithms.names import did_you_mean
from algorithms.readings import MEASURED, NO_SHARES, Reading

RELATIONS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    "==": operator.eq,
    ">": operator.gt,
    "<": operator.lt,
}
"""The longer ones first: a reader of text takes the first that fits."""

_METRIC = r"(?:[A-Za-z0-9][\w-]*\.)?(?:eval|before)\.[a-z_]+(?:@[1-9][0-9]{0,5})?"
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_GATE = re.compile(
    rf"\s*(?P<metric>{_METRIC})\s*(?P<relation>{'|'.join(RELATIONS)})\s*"
    rf"(?:(?P<number>{_NUMBER})|(?:(?P<factor>{_NUMBER})\s*\*\s*)?(?P<bound>{_METRIC}))\s*"
)
GRAMMAR = (
    'METRIC >= NUMBER, METRIC >= METRIC or METRIC >= NUMBER * METRIC (also >, <=, <, ==); a METRIC is "eval.accuracy", '
    'say, "before.loss", or an earlier stage\'s: "sft.eval.accuracy"'
)


@dataclass(frozen=True, slots=True)
class Metric:
    """A number of an evaluation: `when` is "eval" (after training) or "before"; `stage` None means the gate's own."""

    stage: str | None
    when: str
    name: str

    @property
    def pass_at(self) -> int | None:
        """The K of pass@K; None for another metric."""
        return int(self.name.removeprefix("pass@")) if self.name.startswith("pass@") else None

    def __str__(self) -> str:
        return ".".join(part for part in (self.stage, self.when, self.name) if part)


@dataclass(frozen=True, slots=True)
class Gate:
    """`metric relation bound`, or `metric relation factor * bound`."""

    metric: Metric
    relation: str
    factor: float
    bound: Metric | float

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """What has to be measured for it."""
        return (self.metric, self.bound) if isinstance(self.bound, Metric) else (self.metric,)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Whether a gate has let through, in words: the value, the bound, and how sure either is."""

    passed: bool
    message: str


def parse_gate(text: str) -> Gate:
    """Read a condition.

    Raises:
        ValueError: it is not written so, or names what no evaluation measures.
    """
    found = _GATE.fullmatch(text)
    if found is None:
        raise ValueError(f"not a condition on a measurement; write {GRAMMAR}")
    metric, relation, number, factor, bound = found.group("metric", "relation", "number", "factor", "bound")
    if number is not None:
        return Gate(_metric(metric), relation, 1.0, float(number))
    return Gate(_metric(metric), relation, float(factor or 1), _metric(bound))


def judge(gate: Gate, read: Callable[[Metric], Reading | None]) -> Judgement:
    """Hold a gate to what `read` finds. What was not measured lets nothing through."""
    value = read(gate.metric)
    if value is None:
        return Judgement(False, f"{gate.metric} was not measured")
    limit, shown = gate.bound, ""
    if isinstance(limit, Metric):
        reference = read(limit)
        if reference is None:
            return Judgement(False, f"{limit} was not measured")
        factor = "" if gate.factor == 1 else f"{gate.factor:g} * "
        shown = f" = {factor}{limit} ({_told(limit, reference)})"
        limit = gate.factor * reference.value
    passed = RELATIONS[gate.relation](value.value, limit)
    said = "is" if passed else "is not"
    message = f"{gate.metric} = {_told(gate.metric, value)} {said} {gate.relation} {_told(gate.metric, Reading(limit))}"
    vacuous = ", as any share is: it says nothing" if _holds_of_any_share(gate, limit) else ""
    return Judgement(passed, f"{message}{shown}{vacuous}")


def _told(metric: Metric, number: Reading) -> str:
    """As on every page, a share in percent; with more digits, for a bound may be missed by little."""
    if metric.name in NO_SHARES:
        low_high = "" if number.interval is None else " [95%: {:.3g}, {:.3g}]".format(*number.interval)
        return f"{number.value:.4g}{low_high}"
    ends = () if number.interval is None else tuple(100 * end for end in number.interval)
    return f"{100 * number.value:.4g}%" + (" [95%: {:.3g}, {:.3g}]".format(*ends) if ends else "")


def _holds_of_any_share(gate: Gate, limit: float) -> bool:
    """Whether a share of nothing and one of all would both pass, as with a bound of 0.9 times nothing."""
    holds = RELATIONS[gate.relation]
    return gate.metric.name not in NO_SHARES and holds(0.0, limit) and holds(1.0, limit)


def _metric(text: str) -> Metric:
    *stage, when, name = text.split(".")
    if name not in MEASURED and not name.startswith("pass@"):
        hint = did_you_mean(name, MEASURED)
        raise ValueError(f"{text}: no evaluation measures {name!r}; {hint}known: {', '.join(MEASURED)}, pass@K")
    return Metric(stage[0] if stage else None, when, name)
