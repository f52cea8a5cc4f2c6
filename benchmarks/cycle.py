"""What Prefect and our care cost: a GRPO flow beside the plain loop, on a gateway whose operations take a fixed time.

The engine is replaced by delays: `sample` takes 2 s and any number run at once, as on a GPU; everything else takes 1 s,
one at a time. Then a cycle's critical path is known — snapshot 1 + sample 2 + forward_backward 1 + optim_step 1 +
save_state 1 = 6 s — and so is what the cookbook's sequential skeleton takes with 16 groups: 1 + 16·2 + 3 = 36 s.
Whatever the flow takes beyond the critical path is its own.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
import time
from pathlib import Path

from algorithms import adamw_optimizer, forward_backward_payload, result_sampler_id, rl_datum
from benchmarks.figures import Figure
from benchmarks.surroundings import gateway_as_endpoint, prefect_server
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun

GROUPS = 16
SAMPLE_S, OTHER_S = 2.0, 1.0


def run(quick: bool = False) -> list[Figure]:
    """Seconds a cycle of the flow, beside the critical path (by arithmetic) and the skeleton (measured).

    The flow's cycles are measured from the second on, the first one being where connections are made. `quick` measures
    fewer cycles.
    """
    delays = json.dumps({"sample": SAMPLE_S, "default": OTHER_S})
    with (
        tempfile.TemporaryDirectory() as scratch,
        gateway_as_endpoint(Path(scratch) / "gateway", provider="delay", extra_args=["--delays", delays]),
        prefect_server(Path(scratch) / "prefect"),
    ):
        skeleton = asyncio.run(_skeleton())
        flow = _flow(cycles=3 if quick else 8, folder=Path(scratch) / "runs")
    critical_path = OTHER_S + SAMPLE_S + 3 * OTHER_S
    return [
        Figure("a cycle of the flow, beside the critical path", flow, "s", critical_path, at_most=1.15),
        Figure("a cycle of the flow, beside the skeleton", flow, "s", skeleton, at_most=0.20),
    ]


async def _skeleton() -> float:
    """One cycle of the cookbook's loop: an operation, its answer, the next operation."""
    async with WhitneyClient(WhitneySettings()) as client:
        row = (await client.capabilities()).rows[0]
        session = await client.create_session(create_key="skeleton")
        request = CreateRun(create_key="skeleton", provider=row.provider, model=row.model)
        run_id = (await client.create_run(session.session_id, request)).run_id
        began = time.monotonic()
        sampler_id = result_sampler_id(await client.run_operation(run_id, "save_weights_for_sampler", {}))
        data = []
        for group in range(GROUPS):
            prompt = [3, 4, 5 + group]
            sample = await client.sampler_operation(
                run_id,
                sampler_id,
                "sample",
                {"prompt": {"token_ids": prompt}, "num_samples": 2, "sampling_params": {"max_tokens": 8}},
            )
            data += [
                rl_datum(prompt, one["tokens"], one["logprobs"], advantage)
                for one, advantage in zip(sample["sequences"], (1.0, -1.0), strict=True)
            ]
        await client.run_operation(run_id, "forward_backward", forward_backward_payload(data, "importance_sampling"))
        await client.run_operation(run_id, "optim_step", {"optimizer": adamw_optimizer(learning_rate=1e-6)})
        await client.run_operation(run_id, "save_state", {})
        seconds = time.monotonic() - began
        await client.finish(run_id)
        await client.wait_terminal(run_id)
        await client.close_session(session.session_id)
    return seconds


def _flow(cycles: int, folder: Path) -> float:
    """Seconds a cycle of the GRPO flow, by the wall clock from one saved block to the next."""
    import flows
    from flows.config import DataConfig, EvaluationConfig, GrpoConfig, ModelConfig, RewardConfig
    from tasks.events import Event, listening

    saved: list[float] = []

    def listen(event: Event) -> None:
        if event.kind == "block_saved":
            saved.append(time.monotonic())

    config = GrpoConfig(
        name="benchmark",
        output_dir=folder,
        cycles=cycles,
        groups_per_cycle=GROUPS,
        group_size=2,
        model=ModelConfig(name="tiny", provider="local"),
        data=DataConfig(source="addition-1digit"),
        rewards=[RewardConfig(function="length", arguments={"target": 4})],
        evaluation=EvaluationConfig(enabled=False),
    )
    with listening(listen):
        asyncio.run(flows.grpo(config))
    return (saved[-1] - saved[0]) / (len(saved) - 1)
