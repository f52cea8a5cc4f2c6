"""The tokens of a run as the ledger counts them: kind by kind, run by run, example by example.

`sample` reads its prompt once, however many completions it draws; `logprobs` and `forward` read what they are given;
`forward_backward` trains its datums' inputs, which are the prompt and all but the last token of what follows. The
data's order is seeded, so it is known how often each prompt comes; how long completions are is an argument here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add

from flows.checks.planned import planned_measurements
from flows.checks.planned_cost import NOTHING, Tokens
from flows.checks.planned_example import Costs
from flows.checks.planned_prompts import Case
from flows.checks.prepared import Prepared
from flows.config import TttConfig
from tasks.examples import Example


@dataclass(frozen=True, slots=True)
class Counted:
    """A run's two kinds of parts."""

    cycles: Tokens
    measurements: Tokens


def planned_tokens(prepared: Prepared, *, completion_tokens: float) -> dict[str, float]:
    """Tokens of a whole run, measurements included, by the ledger's words; arguments as `count`."""
    counted = count(Costs(prepared), completion_tokens=completion_tokens)
    tokens = counted.cycles + counted.measurements
    return {"prefill": tokens.prefill, "sampled": tokens.sampled, "trained": tokens.trained}


def count(costs: Costs, *, completion_tokens: float, resampled: float = 0.0, case: Case = "typical") -> Counted:
    """The tokens of a run.

    Args:
        costs: of its examples.
        completion_tokens: of every completion; capped at `sampling.max_tokens`, and at the context its prompt leaves.
        resampled: further `sample` operations a cycle.
        case: how much what is not known is taken to be.
    """
    prepared = costs.prepared
    uses = [(costs.trained(one, completion_tokens, how), times) for one, times, how in _uses(prepared, case)]
    again = _drawn_again(uses, resampled * prepared.config.cycles, case)
    measurements = planned_measurements(prepared.config, len(prepared.heldout))
    measured = (costs.measured(one, completion_tokens) for one in prepared.heldout if measurements)
    return Counted(_total(cost * times for cost, times in uses) + again, _total(measured) * measurements)


def _uses(prepared: Prepared, case: Case) -> Iterator[tuple[Example, int, Case]]:
    """Every example that is drawn, how often, and how to count it: whole epochs, and the beginning of another."""
    config, train = prepared.config, prepared.data.train
    if isinstance(config, TttConfig):
        problem = config.problem_of(train)
        # The first cycle has no solution to start from.
        yield problem, config.groups_per_cycle, "least"
        yield problem, config.groups_per_cycle * (config.cycles - 1), case
        return
    size = getattr(config, "groups_per_cycle", 0) or config.batch_size  # type: ignore[attr-defined] # one or the other
    epochs, rest = divmod(config.cycles * size, len(train))
    if epochs:
        yield from ((example, epochs, case) for example in train)
    yield from ((prepared.example_at(epochs * len(train) + place), 1, case) for place in range(rest))


def _drawn_again(costs: Sequence[tuple[Tokens, int]], times: float, case: Case) -> Tokens:
    """DAPO's further draws: of the mean prompt, in place of what is dropped; at most of the longest one, and kept."""
    if not times:
        return NOTHING
    if case == "most":
        return max((cost for cost, _ in costs), key=lambda cost: cost.prefill) * times
    mean = _total(cost * uses for cost, uses in costs) * (1 / sum(uses for _, uses in costs))
    return Tokens(prefill=mean.prefill - mean.frozen, sampled=mean.sampled) * times


def _total(parts: Iterable[Tokens]) -> Tokens:
    return reduce(add, parts, NOTHING)
