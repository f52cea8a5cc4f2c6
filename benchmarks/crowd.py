"""Many runs on one gateway, with faults: `python -m benchmarks.crowd --runs 50 --processes 5`.

Flow runs of several algorithms train at the same time, in a few client processes. Answers are lost, connections break,
requests are refused (for a while, or for good), client processes are killed; every run that fails is retried. Then the
ledger and the adapters say whether anything was executed twice, left open, or learned otherwise than undisturbed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID

import orjson
import psutil

from benchmarks.surroundings import prefect_server  # first: it sets what Prefect reads when it is imported

# isort: split
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.settings import get_current_settings
from prefect.states import AwaitingRetry, Crashed, Scheduled

import flows
from benchmarks.chaos.configs import ALGORITHMS, config, teaching
from benchmarks.chaos.stand import Stand
from flows.config import CONFIGS, FlowConfig

LOOK_EVERY_S = 0.2

# What a client is to survive, by itself: the answer lost, the request lost, a refusal that passes.
PASSING: tuple[dict[str, Any], ...] = (
    {"action": "drop_answer"},
    {"action": "reset"},
    {"action": "status", "status": 503, "retry_after_s": 0.1},
    {"action": "status", "status": 429, "retry_after_s": 0.1},
    {"action": "slow_answer", "delay_s": 0.3},
)
ROUTES = (
    "run_operation",
    "sampler_operation",
    "get_operation",
    "create_session",
    "create_run",
    "get_run",
    "finish_run",
)
# What ends an attempt: a refusal for good.
LETHAL = ("sample", "forward_backward", "optim_step", "save_state")


@dataclass(slots=True)
class Member:
    """A flow run of the crowd."""

    algorithm: str
    folder: Path
    flow_run_id: UUID

    @property
    def summary(self) -> dict[str, Any]:
        """summary.json, of a run that has completed."""
        path = self.folder / "runs" / "run" / "summary.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found


@dataclass(slots=True)
class Peak:
    """The largest resident memory of some processes while the block runs, MiB: of each alone."""

    processes: dict[str, list[psutil.Process]]
    mib: Counter[str] = field(default_factory=Counter)

    def look(self) -> None:
        """Read all of them; one that has gone is passed over."""
        for name, processes in self.processes.items():
            for process in list(processes):
                with suppress(psutil.NoSuchProcess):
                    self.mib[name] = max(self.mib[name], process.memory_info().rss >> 20)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look now and then, in a thread."""
        over = threading.Event()

        def watch() -> None:
            while not over.wait(LOOK_EVERY_S):
                self.look()

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def script(runs: int, seed: int) -> list[dict[str, Any]]:
    """A seeded script: two passing faults a run, and a refusal for good for every fifth."""
    chance = random.Random(seed)
    passing = [
        {**chance.choice(PASSING), "route": chance.choice(ROUTES), "nth": chance.randint(1, 4 * runs)}
        for _ in range(2 * runs)
    ]
    final = [
        {"action": "status", "status": 400, "kind": chance.choice(LETHAL), "nth": chance.randint(1, 3 * runs)}
        for _ in range(max(1, runs // 5))
    ]
    return passing + final


class Crowd:
    """The runs, their client processes, and the gateway they share."""

    def __init__(self, api: SyncPrefectClient, stand: Stand, folder: Path, taught: str) -> None:
        self._api = api
        self._stand = stand
        self._folder = folder
        self._taught = taught
        folder.mkdir(parents=True)
        self._clients: list[psutil.Process] = []
        self.members: list[Member] = []
        self.kills = 0

    def join(self, algorithm: str) -> None:
        """One more flow run, that waits to be picked up."""
        folder = self._folder / f"{len(self.members):03d}"
        parameters = {"config": config(algorithm, 1, folder, self._taught)}
        created = self._api.create_flow_run(flows.FLOWS[algorithm], parameters=parameters, state=Scheduled())
        self.members.append(Member(algorithm, folder, created.id))

    def live(self, processes: int, kills: int, seed: int) -> Peak:
        """Have all of them run, spread over client processes, of which some are killed at work; the memory it took."""
        gateway = psutil.Process(self._stand.gateway.pid)
        peak = Peak({"gateway": [gateway], "engine": gateway.children(), "client": self._clients})
        chance = random.Random(seed)
        with peak.watching():
            shares = [self.members[place::processes] for place in range(processes)]
            alive = [(share, self._start(share)) for share in shares if share]
            doomed = [alive[place] for place in range(min(kills, len(alive)))]
            for share, process in doomed:
                self._kill_at_work(share, process, chance)
                alive.remove((share, process))
                alive.append((share, self._start(self._crashed(share))))
            for _, process in alive:
                process.wait()
        return peak

    def _start(self, share: Sequence[Member]) -> subprocess.Popen[bytes]:
        orders = [{"flow_run_id": str(one.flow_run_id), "algorithm": one.algorithm} for one in share]
        gateway = self._stand.gateway
        environment = {
            **os.environ,
            **get_current_settings().to_environment_variables(exclude_unset=True),
            "PREFECT_LOGGING_TO_API_ENABLED": "false",
            "WHITNEY_BASE_URL": gateway.base_url,
            "WHITNEY_API_KEY": gateway.api_key,
        }
        log = self._folder / f"client-{len(self._clients)}.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.crowd_client"],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=output,
                env=environment,
            )
        assert process.stdin is not None
        process.stdin.write(orjson.dumps(orders))
        process.stdin.close()
        self._clients.append(psutil.Process(process.pid))
        return process

    def _kill_at_work(self, share: Sequence[Member], process: subprocess.Popen[bytes], chance: random.Random) -> None:
        """SIGKILL a client process when one of its runs has saved a block or two."""
        watched, blocks = chance.choice(share), chance.randint(1, 2)
        states = watched.folder / "runs" / "run" / "states.jsonl"
        while process.poll() is None:
            if states.exists() and len(states.read_bytes().splitlines()) >= blocks:
                process.kill()
                self.kills += 1
                break
            time.sleep(LOOK_EVERY_S / 10)
        process.wait()

    def _crashed(self, share: Sequence[Member]) -> list[Member]:
        """What a runner and a person do about it: the state, the hook, Retry. Those that are left to be run."""
        left = []
        for one in share:
            state = self._api.read_flow_run(one.flow_run_id).state
            if state is not None and state.is_completed():
                continue
            left.append(one)
            crashed: Any = Crashed(message="the client process was killed")
            self._api.set_flow_run_state(one.flow_run_id, crashed, force=True)
            flow = flows.FLOWS[one.algorithm]
            for hook in flow.on_crashed_hooks:
                hook(flow, self._api.read_flow_run(one.flow_run_id), crashed)
            self._api.set_flow_run_state(one.flow_run_id, AwaitingRetry(), force=True)
        return left


@dataclass(slots=True)
class Reference:
    """What a run does that nothing befalls: its adapter, its executed operations, and those of its largest part."""

    adapter: str
    executed: Counter[str]
    largest_part: int

    @classmethod
    def of(cls, stand: Stand, summary: dict[str, Any]) -> Reference:
        """Of a run that was alone."""
        executed = executed_by_kind(stand, summary["flow_run_id"])
        rows = [json.loads(line) for line in (Path(summary["run_folder"]) / "metrics.jsonl").read_text().splitlines()]
        blocks = [sum(row[key] for key in row if key.startswith("operations/")) for row in rows]
        beside = executed.total() - sum(blocks)  # both evaluations, and the export
        return cls(summary["adapter_sha256"], executed, max(*blocks, beside))


def executed_by_kind(stand: Stand, flow_run_id: UUID | str) -> Counter[str]:
    """How often the gateway has executed operations of a flow run's sessions, by kind."""
    query = (
        "SELECT kind, sum(executions) FROM operations JOIN runs USING (run_id) JOIN sessions USING (session_id) "
        "WHERE json_extract(labels, '$.\"whitney.flow_run\"') = ? GROUP BY kind"
    )
    with stand.ledger() as ledger:
        return Counter(dict(tuple(row) for row in ledger.execute(query, [str(flow_run_id)])))


def judge(stand: Stand, members: Sequence[Member], references: dict[str, Reference]) -> dict[str, Any]:
    """What must hold of all of them, as numbers."""
    with stand.ledger() as ledger:
        (operations, twice) = ledger.execute(
            "SELECT sum(executions), count(*) FILTER (WHERE executions > 1) FROM operations"
        ).fetchone()
        (still_open,) = ledger.execute("SELECT count(*) FROM sessions WHERE status = 'open'").fetchone()
        sessions = Counter(
            row[0] for row in ledger.execute("SELECT json_extract(labels, '$.\"whitney.flow_run\"') FROM sessions")
        )
    found: Counter[str] = Counter()
    for one in members:
        reference = references[one.algorithm]
        executed = executed_by_kind(stand, one.flow_run_id)
        redone = (executed - reference.executed).total()
        attempts = sessions[str(one.flow_run_id)]
        found["retries"] += attempts - 1
        found["redone_operations"] += redone
        found["lost_operations"] += (reference.executed - executed).total()
        # A client that repeats what was executed under a new seq_id does so without an attempt having failed.
        found["surplus_operations"] += max(0, redone - (attempts - 1) * reference.largest_part)
        found["adapters_equal"] += one.summary.get("adapter_sha256") == reference.adapter
        found["completed"] += bool(one.summary)
    names = ("completed", "retries", "adapters_equal", "redone_operations", "lost_operations", "surplus_operations")
    return {
        "runs": len(members),
        **{name: found[name] for name in names},
        "operations": operations,
        "double_executions": twice,
        "open_sessions": still_open,
    }


def holds(figures: dict[str, Any]) -> bool:
    """Whether every invariant does."""
    none = ("double_executions", "open_sessions", "lost_operations", "surplus_operations")
    return figures["completed"] == figures["adapters_equal"] == figures["runs"] and not any(figures[n] for n in none)


def measure(runs: int, processes: int, kills: int, seed: int, folder: Path) -> dict[str, Any]:
    """Let a crowd live, and judge it."""
    with prefect_server(folder / "prefect"), Stand(folder / "stand") as stand, get_client(sync_client=True) as api:
        os.environ.update(WHITNEY_BASE_URL=stand.gateway.base_url, WHITNEY_API_KEY=stand.gateway.api_key)
        taught, references = asyncio.run(_undisturbed(stand, folder, ALGORITHMS[: min(runs, len(ALGORITHMS))]))
        crowd = Crowd(api, stand, folder / "crowd", taught)
        for place in range(runs):
            crowd.join(ALGORITHMS[place % len(ALGORITHMS)])
        faults = script(runs, seed)
        stand.script(faults)
        began = time.monotonic()
        peak = crowd.live(processes, kills, seed)
        return {
            **judge(stand, crowd.members, references),
            "processes": processes,
            "faults": len(faults),
            "kills": crowd.kills,
            "seconds": round(time.monotonic() - began, 1),
            "peak_mib": dict(peak.mib),
        }


async def _undisturbed(stand: Stand, folder: Path, algorithms: Sequence[str]) -> tuple[str, dict[str, Reference]]:
    """The state that all start from, and a run of each algorithm that is alone and without a fault."""
    sft = CONFIGS["sft"].model_validate(teaching(folder / "taught"))
    taught = (await _run("sft", sft))["state_id"]
    references = {}
    for algorithm in algorithms:
        alone = CONFIGS[algorithm].model_validate(config(algorithm, 1, folder / "alone" / algorithm, taught))
        references[algorithm] = Reference.of(stand, await _run(algorithm, alone))
    return taught, references


async def _run(algorithm: str, chosen: FlowConfig) -> dict[str, Any]:
    running: Any = flows.FLOWS[algorithm](chosen)
    summary: dict[str, Any] = await running
    return summary


def main() -> None:
    """Print the figures; exit status 1 if an invariant broke."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--runs", type=int, default=50)
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--kills", type=int, default=2, help="client processes that are killed at work")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures = measure(arguments.runs, arguments.processes, arguments.kills, arguments.seed, Path(scratch))
    if arguments.json:
        print(json.dumps(figures))
    else:
        print("\n".join(f"{name:20} {value}" for name, value in figures.items()))
    sys.exit(0 if holds(figures) else 1)


if __name__ == "__main__":
    main()
