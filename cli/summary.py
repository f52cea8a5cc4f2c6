"""The summary of a run in the terminal: did it learn, what has it cost, and where is what."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console

from cli.measured import gain_told, measured
from cli.pipeline_lines import gate_lines, outcome_lines
from cli.prefect_setup import flow_run_page
from cli.terminal import sayer
from flows.config.pipeline import PIPELINE
from tasks.bill import again_told, bill_told, cost_told, longer_told
from tasks.planned import planned_told
from tasks.run_forecast import forecast_told
from tasks.stopped import command_to_go_on, left_out, stopped_by_budget, why_stopped

BEST_WIDTH = 100
"""Characters of the best solution that are shown; all of it is in best.json."""


def show_summary(summary: dict[str, Any], console: Console) -> None:
    """What a reader wants first: did it learn, and where is what."""
    for line in summary_lines(summary):
        sayer(console)(line)


def summary_lines(summary: dict[str, Any]) -> Iterator[str]:
    """The same, line by line.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: it is not as a run leaves it.
    """
    if summary.get("algorithm") == PIPELINE:
        yield from ("", *outcome_lines(summary["stages"]), *gate_lines(summary["stages"]))
        yield from _stopped(summary)
    else:
        yield from _learned(summary)
    yield from _bill(summary)
    yield f"Run:       {summary['run_folder']}"
    yield f"Adapter:   {summary['adapter']}"
    yield f"Artifact:  {summary['artifact_id']} (to start or to teach another run with)"
    if page := flow_run_page(summary.get("flow_run_id")):
        yield f"Prefect:   {page}"


def _learned(summary: dict[str, Any]) -> Iterator[str]:
    """Of one algorithm's run: whether it trained, why it stopped, what it found, what it is worth."""
    if not summary.get("operations", {}).get("optim_step"):
        yield (
            "Warning: no optimizer step was taken; the adapter is the initial one. Why: zero_signal_fraction, "
            "dropped/… and skipped/… in metrics.jsonl"
        )
    yield from _stopped(summary)
    if best := best_solution(Path(summary["run_folder"])):
        yield best
    for when in ("before", "after"):
        if evaluation := summary.get(f"evaluation_{when}"):
            yield f"Held out {when + ':':<8} {measured(evaluation)}"
    if gain := summary.get("accuracy_gain"):
        yield f"Gain:      {gain_told(gain)}"
    if forecast := summary.get("forecast"):
        yield f"Forecast:  {forecast_told(forecast)}"


def _stopped(summary: dict[str, Any]) -> Iterator[str]:
    """Of a run that has stopped early: why; where it was its budget, what was left out and how it is made up for."""
    if why := why_stopped(summary):
        yield f"Stopped early: {why}"
    if stopped_by_budget(summary):
        yield f"Left out:  {left_out(summary)}"
    if command := command_to_go_on(summary):
        yield f"To go on:  {command}"


def _bill(summary: dict[str, Any]) -> Iterator[str]:
    """What all attempts were billed for, what of it was done again, and what was planned."""
    sessions = "not known" if summary["open_sessions"] is None else summary["open_sessions"]
    yield f"Billed:    {bill_told(summary)}; open sessions: {sessions}"
    if told := again_told(summary):
        yield f"           {told} (docs/reliability.md)"
    if told := cost_told(summary):
        yield f"Cost:      {told}"
    if told := planned_told(summary):
        yield f"Planned:   {told}"
    if told := longer_told(summary):
        yield f"           {told}"


def best_solution(folder: Path) -> str | None:
    """The best solution that test-time training has found, in a line; None where the run searched for none."""
    path = folder / "best.json"
    try:
        best = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return f"Best:      not known: {path} cannot be read"
    try:
        text = textwrap.shorten(best["solution"], BEST_WIDTH, placeholder=" …")
        return f"Best:      {best['reward']:.3f} in cycle {best['cycle'] + 1} → {path}: {text}"
    except (KeyError, TypeError, ValueError, AttributeError):
        return f"Best:      not known: {path} is not as a run leaves it"
