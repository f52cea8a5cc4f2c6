"""Algorithms as data: what each needs before it may allocate anything."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from algorithms.losses import require_advertised_loss
from algorithms.names import did_you_mean

_TRAIN = ("forward_backward", "optim_step", "save_state", "export_lora")
_ROLLOUT = ("save_weights_for_sampler", "sample")


@dataclass(frozen=True, slots=True)
class Algorithm:
    """One row: `operations` must be advertised by the capability row, every one of `losses` by the loss table.

    `rollouts` says whether completions are sampled and rewarded; `extra_runs` names runs beside the policy's
    ("reference", "teacher", "critic").
    """

    name: str
    title: str
    rollouts: bool
    operations: tuple[str, ...]
    losses: tuple[str, ...]
    paper: str
    extra_runs: tuple[str, ...] = ()


ALGORITHMS: dict[str, Algorithm] = {
    row.name: row
    for row in (
        Algorithm(
            name="sft",
            title="Supervised fine-tuning",
            rollouts=False,
            operations=(*_TRAIN, *_ROLLOUT, "forward"),
            losses=("cross_entropy",),
            paper="arXiv 2203.02155",
        ),
        Algorithm(
            name="grpo",
            title="Group relative policy optimization",
            rollouts=True,
            operations=(*_TRAIN, *_ROLLOUT),
            losses=("importance_sampling",),
            paper="arXiv 2402.03300",
        ),
    )
}


def algorithm(name: str) -> Algorithm:
    """Look an algorithm up.

    Raises:
        ValueError: an unknown name, with the nearest one if there is a near one.
    """
    if name in ALGORITHMS:
        return ALGORITHMS[name]
    hint = did_you_mean(name, ALGORITHMS)
    raise ValueError(f"algorithm {name!r} is unknown: {hint}known: {', '.join(sorted(ALGORITHMS))}")


def require_runnable(row: Algorithm, provider: str, advertised_operations: Collection[str]) -> None:
    """Refuse, before any session, what a provider cannot execute.

    Raises:
        ValueError: a loss the provider is known not to have, or operations its capability row does not advertise.
    """
    for loss in row.losses:
        require_advertised_loss(provider, loss)
    missing = sorted(set(row.operations) - set(advertised_operations))
    if missing:
        raise ValueError(
            f"{row.name} needs {', '.join(missing)}, which {provider} does not advertise "
            f"(advertised: {', '.join(sorted(advertised_operations))})"
        )
