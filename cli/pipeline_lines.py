"""A pipeline in words: which stage, what came of it, what a gate said, and all of them as a table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cli.columns import columns
from tasks.measured import headline

Facts = Mapping[str, Any]

HEAD = ("STAGE", "ALGORITHM", "HELD OUT, BEFORE → AFTER [95%]", "OPERATIONS", "TOKENS", "SECONDS", "ADAPTER")


def pipeline_told(facts: Facts) -> str:
    """What is about to be trained."""
    stages = list(facts["stages"])
    return f"Pipeline {facts['name']}: {' → '.join(stages)}; run folder {facts['folder']}"


def stage_begins(facts: Facts) -> str:
    """Which stage of how many, by which algorithm."""
    named = "" if facts["name"] == facts["algorithm"] else f" ({facts['algorithm']})"
    return f"\nStage {facts['number']}/{facts['stages']}: {facts['name']}{named}"


def stage_done(facts: Facts) -> str:
    """What a stage has come to; one that was not run now says so."""
    outcome = facts["outcome"]
    how = "was finished before" if facts.get("adopted") else "done"
    sure = "; in brackets 95% intervals" if (outcome.get("evaluation_after") or {}).get("intervals") else ""
    return f"Stage {facts['number']}/{facts['stages']} {how}: {outcome['stage']}, {before_and_after(outcome)}{sure}"


def gate_told(facts: Facts) -> str:
    """What the gate behind a stage said."""
    if facts["passed"]:
        return f"Gate of {facts['stage']} passed: {facts['message']}"
    then = {"stop": "the pipeline stops", "pause": "a person is asked", "continue": "going on all the same"}
    return f"Gate of {facts['stage']} failed, {then[str(facts['on_fail'])]}: {facts['message']}"


def outcome_lines(outcomes: Sequence[Facts]) -> list[str]:
    """The stages as a table."""
    return columns(HEAD, [_row(outcome) for outcome in outcomes])


def before_and_after(outcome: Facts) -> str:
    """A stage's measurements in a few words."""
    if (found := headline(outcome.get("evaluation_before"), outcome.get("evaluation_after"))) is None:
        return "not measured"
    name, before, after = found
    return f"{name} {before} → {after}"


def _row(outcome: Facts) -> tuple[object, ...]:
    return (
        outcome["stage"],
        outcome["algorithm"],
        before_and_after(outcome),
        sum(outcome["operations"].values()),
        sum(outcome["tokens"].values()),
        round(outcome["seconds"]),
        outcome["adapter"],
    )


def gate_lines(outcomes: Sequence[Facts]) -> Iterator[str]:
    """What the gates said, one a line; nothing of stages that have none."""
    for outcome in outcomes:
        if gate := outcome.get("gate"):
            yield gate_told({"stage": outcome["stage"], **gate})
