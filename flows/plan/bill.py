"""What a run, or its mean cycle, comes to: everything that a plan counts, once it is priced."""

from __future__ import annotations

from dataclasses import dataclass, field

from algorithms.spans import Span, Spans, added


@dataclass(frozen=True, slots=True)
class Bill:
    """What a part of a run comes to.

    Args:
        operations: by the wire's names.
        tokens: "prefill", "sampled", "trained", as the ledger counts them.
        flops: floating point operations; null where a model's sizes are not known.
        seconds: on the GPUs that `assumptions` names; null without any.
        cost: in the price file's currency; null without a price.
        cost_parts: what of it is for "operations", "tokens", "gpu_time"; each only where it has a price.
    """

    operations: Spans
    tokens: Spans
    flops: Span | None
    seconds: Span | None
    cost: Span | None
    cost_parts: Spans = field(default_factory=dict)

    @property
    def limited(self) -> dict[str, Span | None]:
        """What a `[budget]` limits, by the name of its limit. A month's money is without the price of time."""
        parts = [span for name, span in self.cost_parts.items() if name != "gpu_time"]
        return {
            "max_operations": added(self.operations.values()),
            "max_tokens": added(self.tokens.values()),
            "max_cost": self.cost,
            "max_minutes": self.seconds / 60 if self.seconds else None,
            "max_operations_per_month": added(self.operations.values()),
            "max_cost_per_month": added(parts),
        }
