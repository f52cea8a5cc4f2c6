"""Held-out measurements in the terminal: each number with the ends of its 95% confidence interval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from algorithms.readings import reading
from tasks.measured import gained, told


def measurement(facts: Mapping[str, Any]) -> str:
    """A measurement as it is made, with when: "Held out, cycle 8: accuracy 54.2% [47, 61] …"."""
    when = str(facts["when"])
    after = f"cycle {facts['cycle']}" if when.startswith("cycle-") else f"{when} training"
    return f"Held out, {after}: {measured(facts)}"


def measured(evaluation: Mapping[str, Any]) -> str:
    """A held-out evaluation in one line, which says once what stands in brackets."""
    parts = []
    if evaluation.get("accuracy") is not None:
        how = f"{evaluation['samples']} × {evaluation['prompts']} replies at temperature {evaluation['temperature']:g}"
        parts.append(f"accuracy {share(evaluation, 'accuracy')} ({how})")
    # pass@1 is accuracy by another name.
    parts += [f"{name} {share(evaluation, name)}" for name in evaluation.get("pass_at", {}) if name != "pass@1"]
    if evaluation.get("greedy_accuracy") is not None:
        parts.append(f"greedy {share(evaluation, 'greedy_accuracy')}")
    if evaluation.get("loss") is not None:
        parts.append(f"loss {evaluation['loss']:.3f} nats per token")
    if evaluation.get("margin") is not None:
        positive = evaluation.get("preference_accuracy")
        pairs = "" if positive is None else f" ({positive:.1%} of the pairs positive)"
        parts.append(f"margin {evaluation['margin']:.3f}{pairs}")
    sure = "; in brackets 95% intervals" if evaluation.get("intervals") else ""
    return f"{', '.join(parts)}{sure}" if parts else "nothing measured"


def share(evaluation: Mapping[str, Any], name: str) -> str:
    """A share in percent, and its interval where one is known: "54.2% [47, 61]"."""
    return told(name, reading(evaluation, name))


def gain_told(gain: Mapping[str, Any]) -> str:
    """What accuracy has gained: "+41.2 points [95%: 33, 48], compared prompt by prompt"."""
    points, interval = gained(gain)
    return f"{points} {interval}, compared prompt by prompt"
