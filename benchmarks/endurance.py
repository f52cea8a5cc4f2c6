"""Memory over thousands of operations: `python -m benchmarks.endurance`.

One gateway and one client go through as many operations as are asked for, in sessions that are opened and closed and
runs that train, save, sample and end, most of them from a state that an earlier one saved. Resident memory of the
gateway, of its engine and of the client is read after each twentieth of the operations. What a session, a run or an
operation holds for ever shows as a slope: KiB for each further 1,000 operations, by least squares.

Before that come as many operations to warm up: what is bounded fills first. SQLite keeps 2 MB of its file in the
gateway's memory; the engine keeps kernels (oneDNN) of up to 1,024 shapes that it has met, and has met them all only
after some 6,000 operations (`--warm-up 6000` to see it flat).
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import logging
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from pydantic import SecretStr

from algorithms import adamw_optimizer, forward_backward_payload, rl_datum
from gateway.launch import GatewayProcess, start_gateway
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun, Initial

READINGS = 20
GROUPS, SAMPLES, NEW_TOKENS = 4, 4, 16
AT_ONCE = 2  # sessions that are open together


@dataclass
class Memory:
    """Resident memory in KiB by process, one row a reading."""

    gateway: psutil.Process
    operations: list[int] = field(default_factory=list)
    rows: list[dict[str, float]] = field(default_factory=list)

    def read(self, operations: int) -> None:
        gc.collect()  # of the client: the garbage of a moment is no leak
        row = {"gateway": _kib(self.gateway), "client": _kib(psutil.Process())}
        if engines := self.gateway.children():
            row["engine"] = _kib(engines[0])
        self.operations.append(operations)
        self.rows.append(row)

    def at(self, share: float) -> dict[str, float]:
        """The reading at that share of the operations, in MiB."""
        wanted = self.operations[0] + share * (self.operations[-1] - self.operations[0])
        index = min(range(len(self.rows)), key=lambda i: abs(self.operations[i] - wanted))
        return {name: kib / 1024 for name, kib in self.rows[index].items()}

    def slopes(self) -> dict[str, float]:
        """KiB for each further 1,000 operations."""
        counts = [count / 1000 for count in self.operations]
        return {name: float(np.polyfit(counts, [row[name] for row in self.rows], 1)[0]) for name in self.rows[-1]}


def measure(operations: int, warm_up: int, provider: str) -> dict[str, Any]:
    """Go through at least that many operations; memory on the way, slopes, and what the ledger holds of each."""
    with tempfile.TemporaryDirectory() as scratch:
        no_delays = ("--delays", '{"sample": 0, "default": 0}') if provider == "delay" else ()
        with start_gateway(Path(scratch), provider=provider, extra_args=no_delays) as gateway:
            memory = asyncio.run(_endure(gateway, operations, warm_up))
            ledger = sum(path.stat().st_size for path in Path(scratch).glob("ledger.sqlite*"))
    return {
        "operations": memory.operations[-1] - memory.operations[0],
        "warm_up": memory.operations[0],
        "provider": provider,
        "mib_at": {f"{share:.0%}": memory.at(share) for share in (0.0, 0.25, 0.5, 1.0)},
        "kib_per_1000_operations": memory.slopes(),
        "ledger_bytes_per_operation": ledger / memory.operations[-1],
    }


async def _endure(gateway: GatewayProcess, operations: int, warm_up: int) -> Memory:
    memory = Memory(psutil.Process(gateway.pid))
    settings = WhitneySettings(base_url=gateway.base_url, api_key=SecretStr(gateway.api_key))
    done = sessions = 0
    state_id = None
    async with WhitneyClient(settings) as client:
        while done < warm_up + operations:
            names = [f"session-{sessions + number}" for number in range(AT_ONCE)]
            ended = await asyncio.gather(*(_one_session(client, name, state_id) for name in names))
            sessions += len(names)
            done += sum(count for count, _ in ended)
            state_id = ended[0][1]
            if done >= warm_up + len(memory.rows) * operations / READINGS:
                memory.read(done)
    return memory


async def _one_session(client: WhitneyClient, name: str, state_id: str | None) -> tuple[int, str]:
    """A session with two runs, the second restored from the first's state: operations done, the last state."""
    session = await client.create_session(create_key=name)
    done = 0
    for number in range(2):
        request = CreateRun(
            create_key=f"run-{number}",
            provider="local",
            model="tiny",
            initial=Initial(state_id=state_id) if state_id else None,
        )
        run_id = (await client.create_run(session.session_id, request)).run_id
        cycles = [await _cycle(client, run_id, seed) for seed in range(2)]
        done += sum(cycles) + 2
        await client.run_operation(run_id, "export_lora", {})
        state_id = (await client.run_operation(run_id, "save_state", {}))["state_id"]
        await client.finish(run_id)
        await client.wait_terminal(run_id)
    await client.close_session(session.session_id)
    assert state_id is not None
    return done, state_id


async def _cycle(client: WhitneyClient, run_id: str, seed: int) -> int:
    """A cycle of policy-gradient training; how many operations it takes."""
    sampler_id = (await client.run_operation(run_id, "save_weights_for_sampler", {}))["sampler_id"]
    prompts = [[3, 4, 5 + group] for group in range(GROUPS)]
    params = {"max_tokens": NEW_TOKENS, "seed": seed}
    samples = await asyncio.gather(
        *(
            client.sampler_operation(
                run_id,
                sampler_id,
                "sample",
                {"prompt": {"token_ids": prompt}, "num_samples": SAMPLES, "sampling_params": params},
            )
            for prompt in prompts
        )
    )
    data = [
        rl_datum(prompt, one["tokens"], one["logprobs"], 1.0)
        for prompt, sample in zip(prompts, samples, strict=True)
        for one in sample["sequences"]
    ]
    await client.sampler_operation(run_id, sampler_id, "logprobs", {"input": {"token_ids": prompts[0]}})
    training = client.submit_run_operation(
        run_id, "forward_backward", forward_backward_payload(data, "importance_sampling")
    )
    step = client.submit_run_operation(run_id, "optim_step", {"optimizer": adamw_optimizer(learning_rate=1e-4)})
    await training
    await step
    return len(prompts) + 4


def _kib(process: psutil.Process) -> float:
    return float(process.memory_info().rss / 1024)


def _table(found: dict[str, Any]) -> str:
    names = list(found["kib_per_1000_operations"])
    lines = [f"{found['operations']} operations after {found['warm_up']} to warm up, provider {found['provider']}", ""]
    lines.append("".join(f"{cell:>22}" for cell in ("resident, MiB, at", *names)))
    for share, mib in found["mib_at"].items():
        lines.append(f"{share:>22}" + "".join(f"{mib[name]:>22.1f}" for name in names))
    slopes = found["kib_per_1000_operations"]
    lines.append(f"{'KiB / 1,000 operations':>22}" + "".join(f"{slopes[name]:>22.0f}" for name in names))
    lines.append(
        f"\nledger: {found['ledger_bytes_per_operation']:.0f} bytes an operation, until --keep-days have passed"
    )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.endurance", description=__doc__)
    parser.add_argument("--operations", type=int, default=2000, help="at least so many (default 2000)")
    parser.add_argument("--warm-up", type=int, default=2000, help="operations before them (default 2000)")
    parser.add_argument("--provider", choices=("local", "delay"), default="local", help="local trains; delay is quick")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    arguments = parser.parse_args()
    logging.getLogger("httpx").setLevel(logging.WARNING)
    found = measure(arguments.operations, arguments.warm_up, arguments.provider)
    print(json.dumps(found, indent=2) if arguments.json else _table(found))


if __name__ == "__main__":
    main()
