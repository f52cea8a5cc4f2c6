"""What Prefect and our care cost: a GRPO flow beside the plain loop, on a gateway whose operations take a fixed time.

The engine is replaced by delays: `sample` takes 2 s and any number run at once, as on a GPU; everything else takes 1 s,
one at a time. Then a cycle's critical path is known — snapshot 1 + sample 2 + forward_backward 1 + optim_step 1 +
save_state 1 = 6 s — and so is what the cookbook's sequential skeleton takes with 16 groups: 1 + 16·2 + 3 = 36 s.
Whatever the flow takes beyond the critical path is its own. `python -m benchmarks.cycle` prints it.
"""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from pathlib import Path

from algorithms import adamw_optimizer, forward_backward_payload, result_sampler_id, rl_datum
from gateway.launch import start_gateway
from tasks.prefect_server import SERVER_SETTINGS
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun

GROUPS = 16
SAMPLE_S, OTHER_S = 2.0, 1.0


def run(quick: bool = False) -> dict[str, float]:
    """Seconds a cycle: critical path (by arithmetic), skeleton and flow (measured), and the two ratios.

    The flow runs on a Prefect server of its own, in a temporary folder; its cycles are measured from the second on,
    the first one being where connections are made. `quick` measures fewer cycles.
    """
    with tempfile.TemporaryDirectory() as folder:
        os.environ.update(SERVER_SETTINGS)
        os.environ["PREFECT_HOME"] = str(Path(folder) / "prefect")
        delays = f'{{"sample": {SAMPLE_S}, "default": {OTHER_S}}}'
        with start_gateway(Path(folder) / "gateway", provider="delay", extra_args=["--delays", delays]) as gateway:
            os.environ["WHITNEY_BASE_URL"], os.environ["WHITNEY_API_KEY"] = gateway.base_url, gateway.api_key
            skeleton = asyncio.run(_skeleton())
            flow = _flow(cycles=3 if quick else 8, folder=Path(folder) / "runs")
    critical = OTHER_S + SAMPLE_S + 3 * OTHER_S
    return {
        "critical_path_s": critical,
        "skeleton_s": skeleton,
        "flow_s": flow,
        "flow_over_critical_path": flow / critical,
        "flow_over_skeleton": flow / skeleton,
    }


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
    from prefect.testing.utilities import prefect_test_harness

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
    with prefect_test_harness(server_startup_timeout=120), listening(listen):
        asyncio.run(flows.grpo(config))
    return (saved[-1] - saved[0]) / (len(saved) - 1)


if __name__ == "__main__":
    for name, value in run(quick="--quick" in sys.argv[1:]).items():
        print(f"{name:28} {value:8.2f}")
