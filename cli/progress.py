"""A run in the terminal, told by the flow's events: a bar where there is a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from cli.measured import measurement
from cli.pipeline_lines import gate_told, pipeline_told, stage_begins, stage_done
from cli.question import Question
from cli.terminal import sayer
from tasks.events import Event
from tasks.lineage import count_tokens, usage_of


class RunProgress:
    """A listener for `tasks.events`; also remembers what an error message needs to know.

    `allocated`: something may have been billed. `asking`: a session has been asked for, and its id is not known yet.
    `sessions`: ids of those that are open. `folder`: the run's; known from the beginning where a run is gone on with.
    Of a pipeline the folder is the pipeline's, and each stage is shown as a run is.
    """

    def __init__(self, console: Console, folder: Path | None = None) -> None:
        self.say = sayer(console)
        self.allocated = False
        self.asking = False
        self.sessions: dict[str, None] = {}  # a set that keeps the order they were opened in
        self.folder = None if folder is None else str(folder)
        self._in_pipeline = False
        self._stage_told = ""
        self._question: Question | None = None
        self._bar: Progress | None = None
        self._begin()
        if console.is_terminal:
            self._bar = Progress(
                TextColumn("[bold]{task.description}"),
                BarColumn(bar_width=24),
                MofNCompleteColumn(),
                TextColumn("{task.fields[facts]}"),
                TimeElapsedColumn(),
                console=console,
            )

    def _begin(self) -> None:
        """Nothing is known yet of the run, or of a pipeline's next one."""
        self._adopted = 0  # cycles that an earlier attempt has trained
        self._done = 0
        self._tokens = 0  # of all cycles, whichever attempt has trained them
        self._began: float | None = None
        self._task: TaskID | None = None

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._answered()
        if self._bar:
            with suppress(OSError):  # the terminal is gone
                self._bar.stop()

    def __call__(self, event: Event) -> None:
        """Show one event; those without a line of their own are passed over."""
        facts = event.facts
        if event.kind == "session_requested":
            self.allocated = self.asking = True
        elif event.kind == "session_created":
            self.asking = False
            self.sessions[str(facts["session_id"])] = None
        elif event.kind == "session_closed":
            self.sessions.pop(str(facts["session_id"]), None)
        elif event.kind == "block_saved" and not self._done:
            self._adopt(int(facts["cycle"]) + 1, int(facts["tokens"]))
        elif event.kind in self._shown:
            self._shown[event.kind](facts)

    @property
    def _shown(self) -> dict[str, Callable[[Mapping[str, Any]], None]]:
        """How an event that has lines of its own is told."""
        return {
            "warning": lambda facts: self.say(f"Warning: {facts['message']}"),
            "prepared": self._prepared,
            "session_opened": self._opened,
            "evaluated": lambda facts: self.say(measurement(facts)),
            "cycle": lambda facts: self._cycle(
                int(facts["cycle"]), int(facts["cycles"]), facts["metrics"], facts.get("budget")
            ),
            "exported": lambda facts: self.say(f"Adapter in {facts['path']}"),
            "closing": lambda facts: self.say(str(facts["message"])),
            "verdict": lambda facts: self.say(str(facts["message"])),
            "pipeline": self._pipeline,
            "stage": self._stage,
            "stage_done": lambda facts: self.say(stage_done(facts)),
            "gate": lambda facts: self.say(gate_told(facts)),
            "paused": self._paused,
            "resumed": self._resumed,
        }

    def _opened(self, facts: Mapping[str, Any]) -> None:
        going_on = f", going on after cycle {self._adopted}" if self._adopted else ""
        self.say(f"Session {facts['session_id']}, run {facts['run_id']}{going_on}")

    def _pipeline(self, facts: Mapping[str, Any]) -> None:
        self._in_pipeline = True
        self.folder = str(facts["folder"])
        self.say(pipeline_told(facts))

    def _stage(self, facts: Mapping[str, Any]) -> None:
        if self._bar and self._task is not None:
            self._bar.remove_task(self._task)
        self._begin()
        self._stage_told = f"{facts['number']}/{facts['stages']} {facts['name']}"
        self.say(stage_begins(facts))

    def _paused(self, facts: Mapping[str, Any]) -> None:
        self._answered()
        if self._bar:
            self._bar.stop()  # it would be drawn over what is typed
        self._question = Question(facts, self.say)

    def _resumed(self, facts: Mapping[str, Any]) -> None:
        self._answered()
        if self._bar:
            self._bar.start()
        self.say("Going on" if facts["go_on"] else "Declined")

    def _answered(self) -> None:
        if self._question is not None:
            self._question.close()
            self._question = None

    def _prepared(self, facts: Mapping[str, Any]) -> None:
        if not self._in_pipeline:
            self.folder = str(facts["folder"])
        for warning in facts.get("warnings", ()):
            self.say(f"Warning: {warning}")
        cycles = f"{facts['cycles']} cycle{'' if facts['cycles'] == 1 else 's'}"
        self.say(
            f"{facts['algorithm']} on {facts.get('model')}: {cycles}, {facts['train']} training and "
            f"{facts['heldout']} held-out examples; run folder {facts['folder']}"
        )
        if self._bar:
            self._task = self._bar.add_task(
                self._stage_told or str(facts["algorithm"]), total=facts["cycles"], facts=""
            )

    def _adopt(self, cycles: int, tokens: int) -> None:
        self._adopted = cycles
        self._tokens += tokens
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=cycles)

    def _cycle(self, cycle: int, cycles: int, metrics: Mapping[str, Any], budget: float | None) -> None:
        now = time.monotonic()
        if self._began is None:
            self._began = now - float(metrics.get("seconds/cycle", 0.0))
        self._done += 1
        self._tokens += count_tokens(usage_of(metrics))
        left = (now - self._began) / self._done * (cycles - cycle - 1)
        spent = "" if budget is None else f"  budget {budget:.0%}"
        line = f"{headline(metrics)}  {self._tokens:,} tokens{spent}  ETA {_minutes(left)}"
        if self._bar and self._task is not None:
            self._bar.update(self._task, completed=cycle + 1, facts=line)
        else:
            self.say(f"cycle {cycle + 1}/{cycles}  {line}")


def headline(metrics: Mapping[str, Any]) -> str:
    """Whether the cycle trained at all, and the numbers that say whether it learns."""
    shown = {
        "reward": "reward_mean",
        "best": "best_reward",
        "teacher KL": "teacher_kl",
        "margin": "margin",
        "no signal": "zero_signal_fraction",
        "cut off": "length_fraction",
        "loss/token": "loss_per_token",
    }
    if "margin" in metrics:  # of preferences: their datums' weights are a gradient, so this number is no likelihood
        del shown["loss/token"]
    numbers = [f"{label} {metrics[key]:.3f}" for label, key in shown.items() if metrics.get(key) is not None]
    return "  ".join(_untrained(metrics) + numbers)


def _untrained(metrics: Mapping[str, Any]) -> list[str]:
    """What to say of a cycle that sent no datum; nothing of one that did."""
    if metrics.get("datums") != 0:
        return []
    skipped = [key.removeprefix("skipped/") for key in metrics if key.startswith("skipped/")]
    return [f"skipped: {', '.join(skipped)}" if skipped else "nothing trained"]


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d}"
