"""The campaign: stands side by side, undisturbed runs first, then one scenario after another, and the sums."""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prefect.client.orchestration import get_client

from benchmarks.chaos.catalogue import draw
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.play import Player
from benchmarks.chaos.runner import prepare_forks
from benchmarks.chaos.scenario import Scenario
from benchmarks.chaos.stand import Stand
from benchmarks.chaos.verdict import COUNTED, Verdict

SAVE_EVERY = (1, 2)

Job = Callable[[Player], Any]
Tell = Callable[[Verdict], None]


@dataclass(frozen=True, slots=True)
class Report:
    """What a campaign has found."""

    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def holds(self) -> bool:
        """Whether every scenario's invariants do; a campaign without scenarios has shown nothing."""
        return bool(self.verdicts) and all(verdict.holds for verdict in self.verdicts)

    def sums(self) -> dict[str, Any]:
        """The counts, as they are printed."""
        verdicts = self.verdicts
        return {
            "scenarios": len(verdicts),
            "faults": sum(len(verdict.fired) for verdict in verdicts),
            "unfired": sum(len(verdict.unfired) for verdict in verdicts),
            **{name: sum(len(verdict.breaches[name]) for verdict in verdicts) for name in COUNTED},
            "adapters_equal": sum(verdict.adapter_equal for verdict in verdicts),
            "attempts": sum(verdict.attempts for verdict in verdicts),
            "operations_redone": sum(verdict.redone for verdict in verdicts),
        }


class Campaign:
    """Some stands, each with a thread of its own that plays what it is handed. Needs a Prefect server in the settings.

    Args:
        folder: where everything is left: a folder a scenario, a data directory a gateway.
        stands: how many scenarios are played at once.
    """

    def __init__(self, folder: Path, *, stands: int = 2) -> None:
        self._folder = folder
        self._jobs: queue.Queue[tuple[Job, Future[Any]] | None] = queue.Queue()
        self._threads = [
            # The settings that name the Prefect server are in this context, which a thread does not inherit.
            threading.Thread(target=contextvars.copy_context().run, args=(self._serve, number), daemon=True)
            for number in range(stands)
        ]
        self._references: dict[Scenario, Evidence] = {}

    def __enter__(self) -> Campaign:
        prepare_forks()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        # After an interruption much may still wait; what is being played is played to its end, or a stand would leak.
        with suppress(queue.Empty):
            while True:
                self._jobs.get_nowait()
        for _thread in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            thread.join()

    def _serve(self, number: int) -> None:
        folder = self._folder / f"stand-{number}"
        try:
            with Stand(folder) as stand, get_client(sync_client=True) as api:
                player = Player(api, stand, folder)
                while (job := self._jobs.get()) is not None:
                    work, future = job
                    try:
                        future.set_result(work(player))
                    except Exception as error:
                        future.set_exception(error)
        except Exception as error:  # a stand that does not come up: who waits for a scenario must hear of it
            while (job := self._jobs.get()) is not None:
                job[1].set_exception(error)

    def _submit(self, work: Job) -> Future[Any]:
        future: Future[Any] = Future()
        self._jobs.put((work, future))
        return future

    def scenarios(
        self, number: int, seed: int, algorithms: Sequence[str], save_every: Sequence[int] = SAVE_EVERY
    ) -> list[Scenario]:
        """Draw; the undisturbed runs tell what there is to be hit."""
        shapes = [Scenario(algorithm, every) for algorithm in algorithms for every in save_every]
        self._refer(shapes)
        counts = {(shape.algorithm, shape.save_every): self._references[shape].counts for shape in shapes}
        return draw(number, seed, counts)

    def run(self, scenarios: Iterable[Scenario], *, client: str | None = None, tell: Tell = lambda _: None) -> Report:
        """Play them all, telling each verdict as it comes; `client` names one of `benchmarks.chaos.broken`."""
        scenarios = list(scenarios)
        self._refer(scenario.undisturbed for scenario in scenarios)
        report = Report()

        def play(scenario: Scenario) -> Job:
            return lambda player: player.play(scenario, self._references[scenario.undisturbed], client)

        for future in [self._submit(play(scenario)) for scenario in scenarios]:
            verdict = future.result()
            report.verdicts.append(verdict)
            tell(verdict)
        return report

    def _refer(self, shapes: Iterable[Scenario]) -> None:
        def undisturbed(shape: Scenario) -> Job:
            return lambda player: player.undisturbed(shape)

        missing = {shape for shape in shapes if shape not in self._references}
        futures = {shape: self._submit(undisturbed(shape)) for shape in sorted(missing, key=str)}
        self._references |= {shape: future.result() for shape, future in futures.items()}
