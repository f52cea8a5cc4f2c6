"""What README.md quotes of docs/learning.md: the figures of benchmarks/learning.json, one line an algorithm."""

from __future__ import annotations

from pathlib import Path

from benchmarks.experiments import Experiment, Record, Records

README = Path(__file__).parents[1] / "README.md"
HEAD = ("| on SmolLM2-135M, two CPU cores | before | after | cycles | minutes |", "|---|---|---|---|---|")

# Per section: what is measured, and which two figures are its before and after.
QUOTED = {
    "addition": ("held-out accuracy", "before", "after", ".0%"),
    "distillation": ("reverse KL, nats per token", "reverse KL, first cycles", "reverse KL, last cycles", ".2f"),
    "preferences": ("held-out margin", "margin before", "margin after", ".2f"),
    "discovery": ("best reward: best of N, then TTT", "best, base", "best, ttt", ".2f"),
    "feedback": ("held-out accuracy", "before", "after, verifier", ".0%"),
    "pipeline": ("held-out accuracy of its student", "base", "student", ".0%"),
}


def table(experiments: tuple[Experiment, ...], records: Records) -> list[str]:
    """The lines of the table; what has not been measured is left out."""
    measured = [(experiment, records.of(experiment)) for experiment in experiments]
    return [*HEAD, *(_row(experiment, record) for experiment, record in measured if record is not None)]


def readme(experiments: tuple[Experiment, ...], records: Records) -> str:
    """README.md with its table made anew."""
    lines = README.read_text(encoding="utf-8").splitlines()
    first = lines.index(HEAD[0])
    behind = next(place for place in range(first, len(lines)) if not lines[place].startswith("|"))
    return "\n".join([*lines[:first], *table(experiments, records), *lines[behind:]]) + "\n"


def _row(experiment: Experiment, record: Record) -> str:
    what, before, after, form = QUOTED[experiment.section]
    figures = record.finding.figures
    cells = (
        f"{experiment.name}: {what}",
        format(figures[before], form),
        format(figures[after], form),
        f"{figures['cycles']:.0f}",
        f"{record.wall_s / 60:.1f}",
    )
    return f"| {' | '.join(cells)} |"
