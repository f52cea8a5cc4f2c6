"""One scenario from its flow run to its verdict, on one stand."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import orjson
from prefect.client.orchestration import SyncPrefectClient
from prefect.settings import PREFECT_API_URL, PREFECT_HOME
from pydantic import SecretStr

from benchmarks.chaos.child import Order
from benchmarks.chaos.configs import config, run_folders, teaching
from benchmarks.chaos.evidence import Evidence
from benchmarks.chaos.runner import Attempt, Runner, StuckError, journal
from benchmarks.chaos.scenario import CRASH, Scenario
from benchmarks.chaos.stand import Stand
from benchmarks.chaos.verdict import Verdict, judge
from tasks.reaping import ask_prefect, reap_sessions
from whitney.settings import WhitneySettings

MOST_ATTEMPTS = 6

# So slow that a Retry pressed at once finds the hook of the attempt before at work.
_SLOW_HOOK = {"action": "slow_answer", "route": "cancel_run", "delay_s": 0.8, "times": 100}


class Player:
    """Plays scenarios on one stand, one after another."""

    def __init__(self, api: SyncPrefectClient, stand: Stand, folder: Path) -> None:
        self._stand = stand
        self._runner = Runner(api, stand)
        self._folder = folder
        self._taught: str | None = None
        self._orders = 0

    def undisturbed(self, scenario: Scenario) -> Evidence:
        """A run of the scenario's configuration that nothing befalls, by the true client: what others must equal.

        Raises:
            RuntimeError: even that failed.
        """
        order = self._order(scenario.algorithm, scenario.save_every)
        attempt = self._runner.start(order)
        self._runner.wait(attempt)
        self._require_completed(order)
        return self._evidence(order)

    def play(self, scenario: Scenario, reference: Evidence, client: str | None = None) -> Verdict:
        """Do to a run what the scenario says, press Retry until it has completed, and judge."""
        began, crashes = time.monotonic(), self._stand.crashes
        verdict = Verdict(scenario)
        order = replace(self._order(scenario.algorithm, scenario.save_every), client=client)
        try:
            self._until_completed(order, verdict, reference)
        except StuckError as error:
            verdict.breaches["other"].append(str(error))
        if self._stand.crashes > crashes:
            verdict.fired += [fault for fault in scenario.faults if fault.action == CRASH]
        judge(verdict, self._evidence(order), reference)
        self._stand.script([])
        verdict.seconds = time.monotonic() - began
        return verdict

    def _until_completed(self, order: Order, verdict: Verdict, reference: Evidence) -> None:
        scenario = verdict.scenario
        hooks: list[BaseProcess] = []
        while verdict.attempts < MOST_ATTEMPTS and not (self._completed(order) and verdict.attempts):
            if verdict.attempts:
                self._runner.press_retry(order.flow_run_id)
            attempts = [self._start(order, verdict, reference)]
            if scenario.ending == "twice" and verdict.attempts == 2:
                attempts.append(self._retry_while_at_work(attempts[0], verdict, reference))
            self._runner.wait(*attempts)
            for attempt in attempts:
                if attempt.unheard:
                    verdict.breaches["other"].append(f"attempt {attempt.order.attempt} did not hear SIGTERM")
                hooked = verdict.attempts > 1 or scenario.ending not in {"unwatched", "reaped"}
                hooks += self._runner.settle(attempt, hook=hooked)
            if verdict.attempts > 1 or scenario.ending != "at_once":
                for hook in hooks:
                    hook.join()
            self._judge_sessions(order, verdict)
        self._judge_attempts(order, verdict)
        if scenario.ending == "finished":
            self._retry_when_finished(order, verdict, reference)

    def _start(self, order: Order, verdict: Verdict, reference: Evidence) -> Attempt:
        verdict.attempts += 1
        scenario, number = verdict.scenario, verdict.attempts
        due = [fault for fault in scenario.faults if fault.attempt == number]
        lines = [fault.scripted(reference.seq_of(fault)) for fault in due if fault.in_gateway]
        self._stand.script([*lines, *([_SLOW_HOOK] if scenario.ending == "at_once" else [])])
        mine = tuple(fault for fault in due if not fault.in_gateway)
        return self._runner.start(replace(order, attempt=number, faults=mine))

    def _retry_while_at_work(self, attempt: Attempt, verdict: Verdict, reference: Evidence) -> Attempt:
        """Press Retry once more when the retried attempt has posted its first operation."""

        def at_work() -> bool:
            lines = journal(attempt.order)
            return any(line["attempt"] == attempt.order.attempt and "digest" in line for line in lines)

        self._runner.wait(attempt, until=at_work)
        self._runner.press_retry(attempt.order.flow_run_id)
        return self._start(attempt.order, verdict, reference)

    def _judge_sessions(self, order: Order, verdict: Verdict) -> None:
        """Between two attempts none is open: the hook has seen to it, and where there was none, the reaper's call."""
        ending, first = verdict.scenario.ending, verdict.attempts == 1
        if first and ending in {"at_once", "unwatched"}:
            return  # the next attempt does it
        if first and ending == "reaped":
            settings = WhitneySettings(base_url=order.base_url, api_key=SecretStr(order.api_key))
            reap_sessions(settings, ask_prefect)
        if first and ending == "truncated":
            self._truncate_newest_state(order)
        left = [session for session, status in self._evidence(order).sessions if status != "closed"]
        verdict.breaches["open_sessions"] += [f"{one} is open after attempt {verdict.attempts}" for one in left]

    def _truncate_newest_state(self, order: Order) -> None:
        states = (order.folder / "runs" / "run" / "states.jsonl").read_bytes().splitlines()
        file = self._stand.state_file(orjson.loads(states[-1])["state_id"])
        os.truncate(file, file.stat().st_size // 2)

    def _retry_when_finished(self, order: Order, verdict: Verdict, reference: Evidence) -> None:
        before = self._evidence(order)
        self._runner.press_retry(order.flow_run_id)
        attempt = self._start(order, verdict, reference)
        self._runner.wait(attempt)
        after = self._evidence(order)
        if (before.sessions, before.runs, before.operations.keys()) != (
            after.sessions,
            after.runs,
            after.operations.keys(),
        ):
            verdict.breaches["other"].append("Retry of a finished run allocated something")
        if not self._completed(order):
            verdict.breaches["other"].append(f"Retry of a finished run: {self._runner.state(order.flow_run_id).name}")

    def _judge_attempts(self, order: Order, verdict: Verdict) -> None:
        scenario = verdict.scenario
        if not self._completed(order):
            state = self._runner.state(order.flow_run_id)
            verdict.breaches["other"].append(f"{state.name} after {verdict.attempts} attempts: {state.message}")
        # Of two attempts that are at work at once one gives way to the other, whichever it is.
        needed = 1 + scenario.lethal + (2 if scenario.ending == "twice" else 0)
        if verdict.attempts > needed:
            verdict.breaches["needless_failures"].append(
                f"{verdict.attempts} attempts, where {needed} can be explained by what was done to them"
            )

    def _completed(self, order: Order) -> bool:
        return self._runner.state(order.flow_run_id).is_completed()

    def _require_completed(self, order: Order) -> None:
        if not self._completed(order):
            raise RuntimeError(
                f"an undisturbed run of {order.algorithm} ended as {self._runner.state(order.flow_run_id)}: "
                f"see {order.folder}"
            )

    def _order(self, algorithm: str, save_every: int) -> Order:
        """A flow run in a folder of its own."""
        if self._taught is None:
            self._taught = self._teach()
        folder = self._new_folder()
        return self._ordered(algorithm, config(algorithm, save_every, folder, self._taught), folder)

    def _teach(self) -> str:
        folder = self._new_folder()
        order = self._ordered("sft", teaching(folder), folder)
        self._runner.wait(self._runner.start(order))
        self._require_completed(order)
        state_id: str = orjson.loads((folder / "runs" / "taught" / "summary.json").read_bytes())["state_id"]
        return state_id

    def _ordered(self, algorithm: str, parameter: dict[str, Any], folder: Path) -> Order:
        gateway = self._stand.gateway
        return Order(
            algorithm=algorithm,
            flow_run_id=self._runner.create(algorithm, parameter),
            attempt=1,
            folder=folder,
            prefect_api_url=PREFECT_API_URL.value(),
            prefect_home=PREFECT_HOME.value(),
            base_url=gateway.base_url,
            api_key=gateway.api_key,
        )

    def _new_folder(self) -> Path:
        self._orders += 1
        folder = self._folder / f"{self._orders:03d}"
        folder.mkdir(parents=True)
        return folder

    def _evidence(self, order: Order) -> Evidence:
        return Evidence.gather(
            self._stand, order.flow_run_id, journal(order), run_folders(order.algorithm, order.folder)
        )
