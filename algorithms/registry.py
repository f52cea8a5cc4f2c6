"""Algorithms by name, and what is refused before any of them allocates anything."""

from __future__ import annotations

from collections.abc import Collection

from algorithms.contract import Algorithm
from algorithms.losses import require_advertised_loss, require_provider
from algorithms.names import did_you_mean
from algorithms.table import ROWS

__all__ = ["ALGORITHMS", "Algorithm", "algorithm", "require_losses", "require_runnable"]

ALGORITHMS: dict[str, Algorithm] = {row.name: row for row in ROWS}


def algorithm(name: str) -> Algorithm:
    """Look an algorithm up.

    Raises:
        ValueError: an unknown name, with the nearest one if there is a near one.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    hint = did_you_mean(name, ALGORITHMS)
    raise ValueError(f"unknown algorithm {name!r}: {hint}known: {', '.join(sorted(ALGORITHMS))}")


def require_losses(row: Algorithm, provider: str) -> None:
    """The part of `require_runnable` that needs no endpoint.

    Raises:
        ValueError: a provider that is not known, or known not to have one of the row's losses.
    """
    require_provider(provider)
    for loss in row.losses:
        require_advertised_loss(provider, loss)


def require_runnable(
    row: Algorithm, provider: str, advertised_operations: Collection[str], loss_reduction: str = "sum"
) -> None:
    """Refuse, before any session, what a provider cannot execute.

    Args:
        row: what is to be run.
        provider: "modal", "tinker" or "local".
        advertised_operations: the capability row's.
        loss_reduction: the capability row's: "sum", or "mean".

    Raises:
        ValueError: a loss the provider is known not to have, operations its capability row does not advertise, or a
            reduction that gradient weights do not survive.
    """
    require_losses(row, provider)
    missing = sorted(set(row.operations) - set(advertised_operations))
    if missing:
        raise ValueError(
            f"{row.name} needs {', '.join(missing)}, which {provider} does not advertise "
            f"(advertised: {', '.join(sorted(advertised_operations))})"
        )
    if row.needs_sum_reduction and loss_reduction != "sum":
        raise ValueError(
            f"{row.name} sends its gradient as cross_entropy weights, which is right only where cross_entropy is a "
            f"plain sum; {provider}'s loss_reduction is {loss_reduction!r}. Use a deployment that sums"
        )
