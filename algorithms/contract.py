"""What is known of an algorithm before it runs: one row of `algorithms.table`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Self

from algorithms.losses import PROVIDER_LOSS_SUPPORT, WHY_MISSING


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row.

    Args:
        name: as flows, files and the command line call it.
        title: for people.
        contract: what makes it this algorithm and no other, in one sentence.
        rollouts: whether completions are sampled.
        operations: kinds that the capability row must advertise, for the extra runs too.
        losses: every one of them must be in the provider's row of the loss table.
        optional_losses: asked for by an option only, on `optional_providers`.
        extra_runs: runs beside the policy's: "reference", "teacher", "critic".
        paper: where it comes from.
        operations_per_cycle: the ledger's count of a cycle, as a formula; `operations_in_cycle` has the numbers.
        forwards_per_cycle: `forward` operations of a cycle, over all runs.
        needs_sum_reduction: whether the provider's cross_entropy must be a plain sum (gradient weights).
        also_refuses: what else is refused before a session exists, beside operations and losses.
        profile: its row of tinker-nomics's catalogue (`algorithms.catalogue`), None where it has none of its own.
        family: the row of the algorithm that it is a variant of; None where it has its own, or is of no family there.
    """

    name: str
    title: str
    contract: str
    rollouts: bool
    operations: tuple[str, ...]
    losses: tuple[str, ...]
    paper: str
    operations_per_cycle: str
    optional_losses: tuple[str, ...] = ()
    optional_providers: frozenset[str] = frozenset(PROVIDER_LOSS_SUPPORT)
    extra_runs: tuple[str, ...] = ()
    forwards_per_cycle: int = 0
    needs_sum_reduction: bool = False
    also_refuses: tuple[str, ...] = ()
    profile: str | None = None
    family: str | None = None

    @property
    def losses_by_provider(self) -> dict[str, tuple[str, ...]]:
        """The losses it sends on each provider, optional ones last; none where the provider cannot run it."""
        by_provider: dict[str, tuple[str, ...]] = {}
        for provider, known in PROVIDER_LOSS_SUPPORT.items():
            optional = self.optional_losses if provider in self.optional_providers else ()
            runs = known.issuperset(self.losses)
            by_provider[provider] = (*self.losses, *(loss for loss in optional if loss in known)) if runs else ()
        return by_provider

    @property
    def refuses(self) -> tuple[str, ...]:
        """One sentence for every reason to refuse before a session exists."""
        missing = tuple(
            f"{provider}: has no {loss}" + (f" ({why})" if (why := WHY_MISSING.get((provider, loss))) else "")
            for provider, known in PROVIDER_LOSS_SUPPORT.items()
            for loss in self.losses
            if loss not in known
        )
        reduction = ("a backend whose cross_entropy is not a plain sum",) if self.needs_sum_reduction else ()
        return (*missing, *reduction, *self.also_refuses)

    def operations_in_cycle(self, *, prompts: int, group_size: int, steps: int) -> Counter[str]:
        """`operations_per_cycle` in numbers, at most: without what an algorithm draws again or a user's function calls.

        Args:
            prompts: P, prompts per cycle.
            group_size: G, completions per prompt.
            steps: K, optimizer steps on a cycle's batch.
        """
        trained = steps * (2 if "critic" in self.extra_runs else 1)
        counts = Counter(forward=self.forwards_per_cycle, forward_backward=trained, optim_step=trained)
        if self.rollouts:
            frozen = sum(role != "critic" for role in self.extra_runs)
            counts.update(save_weights_for_sampler=1, sample=prompts, logprobs=prompts * group_size * frozen)
        return +counts

    def with_operations(self, *kinds: str) -> Self:
        """The row with more kinds that must be advertised, as a configuration asks for."""
        return replace(self, operations=tuple(dict.fromkeys((*self.operations, *kinds))))

    def with_run(self, role: str) -> Self:
        """The row with one more frozen run that answers log-probs, as a KL term asks for ("reference")."""
        if role in self.extra_runs:
            return self
        operations = tuple(dict.fromkeys((*self.operations, "logprobs")))
        per_cycle = f"{self.operations_per_cycle} + P·G logprobs ({role})"
        return replace(self, extra_runs=(*self.extra_runs, role), operations=operations, operations_per_cycle=per_cycle)
