"""What tinker-nomics says of an algorithm's cost and memory, as tables and pages tell it."""

from __future__ import annotations

from collections.abc import Iterable

from algorithms.catalogue import Profile, Scaling, profile_of, references
from algorithms.contract import Algorithm
from algorithms.scaling import H100_HOURS_PER_GB200_HOUR

NOTHING = "–"
NO_ROW = "none: tinker-nomics has no row for it"
SETTING = "Llama-3.1-8B on MATH"
"""What the published curves are of."""


def facts(row: Algorithm) -> dict[str, str]:
    """What to say of one algorithm, by label; of one without a row of its own, its family's, and that it is.

    A curve is a measurement: a variant has none of its family's.
    """
    profile = profile_of(row)
    if profile is None:
        return {"catalogue row": NO_ROW, "paper": row.paper, "curve": curve_told(row)}
    return {
        "catalogue row": profile.name if row.profile else f"{profile.name}, its family",
        "full name": profile.full_name if row.profile else row.title,
        "paper": profile.paper if row.profile else row.paper,
        **shared_facts(profile),
        "tinker-nomics notes": profile.notes if row.profile else f"Of {profile.name}: {profile.notes}",
        "curve": curve_told(row),
        "references": "\n".join(str(references()[key]) for key in profile.references if row.profile) or NOTHING,
    }


def shared_facts(profile: Profile) -> dict[str, str]:
    """What a whole family has in common."""
    return {
        "models in memory": ", ".join(profile.models),
        "critic": yes(profile.critic),
        "reward model": yes(profile.reward_model),
        "memory": profile.memory,
        "typical K": numbers(profile.typical_k),
        "typical G": numbers(profile.typical_g),
        "asynchronous": yes(profile.asynchronous),
    }


def scaling_of(row: Algorithm) -> Scaling | None:
    """The curve that was published of this algorithm itself, if one was."""
    profile = profile_of(row)
    return profile.scaling if profile is not None and row.profile else None


def curve_told(row: Algorithm) -> str:
    """Its parameters, A as a share: "A 0.58, B 2.2, Cmid 3,000 GB200 h = 8,400 H100 h"."""
    scaling = scaling_of(row)
    if scaling is None:
        return "none published"
    return f"A {scaling.ceiling:g}, B {scaling.steepness:g}, Cmid {hours(scaling.midpoint)}"


def hours(gb200: float) -> str:
    """Compute in both units: "3,000 GB200 h = 8,400 H100 h"."""
    return f"{gb200:,.0f} GB200 h = {gb200 * H100_HOURS_PER_GB200_HOUR:,.0f} H100 h"


def numbers(values: Iterable[int]) -> str:
    """In a row: "2, 8, 16"."""
    return ", ".join(map(str, values)) or NOTHING


def yes(value: bool) -> str:
    """In words."""
    return "yes" if value else "no"
