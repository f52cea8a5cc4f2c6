"""Retry, as the button of the Prefect UI does it: whatever step a run fails at, it ends as one that never failed.

One flow run of each algorithm fails at every step of its life, one after another, and is retried each time. The runs
are served by one process and live at the same time; each has a gateway of its own, so that a fault is its alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from uuid import UUID

import pytest
from flow_probes import lines
from lineage_probes import require_each_cycle_once, require_one_block_redone_at_most
from prefect.client.schemas.objects import StateType
from served import FaultyGateway, Served, read, serving, state_of, until
from tiny_configs import SHORT, tiny_config

import flows
from tasks.credentials import WhitneyCredentials
from whitney.labels import ATTEMPT
from whitney.routes import ROUTES

CYCLES = 4
ALGORITHMS = ("grpo", "dapo", "opd")

# Slow learners, whose groups still differ in the last cycle, so that every cycle has a gradient.
SLOWLY = {"optimizer": {"learning_rate": 2e-3}}


class Step(NamedTuple):
    """Where an attempt fails: at the nth request of a kind, or on a route, counted from where the attempt goes on."""

    name: str
    nth: int
    saves: int = 0
    """Blocks that the attempt saves before it fails, at most."""

    @property
    def fault(self) -> dict[str, Any]:
        where = "route" if self.name in ROUTES else "kind"
        return {"action": "status", "status": 400, where: self.name, "nth": self.nth}


# In the order in which a life meets them: each begins where the one before has left off.
STEPS = (
    Step("create_session", 1),
    Step("create_run", 1),
    Step("save_weights_for_sampler", 1),
    Step("sample", 2),
    Step("forward_backward", 2, saves=1),
    Step("optim_step", 2, saves=1),
    Step("save_state", 1),
    Step("export_lora", 1, saves=CYCLES),
)
OWN_STEPS = {
    "grpo": (),
    # A round of resampling, behind two cycles' two groups.
    "dapo": (Step("sample", 5, saves=1),),
    # The teacher's run, and what it is asked.
    "opd": (Step("create_run", 2), Step("logprobs", 2)),
}
# Of the very last steps a life has one: once the adapter is there, a Retry opens no session that could be ended.
LAST_STEP = {"grpo": "finish_run", "dapo": "close_session", "opd": "get_run"}


def steps_of(algorithm: str, *, all_of_them: bool) -> list[Step]:
    """All steps, or the algorithm's own and its third of those that all have; then its last."""
    shared = STEPS if all_of_them else STEPS[ALGORITHMS.index(algorithm) :: len(ALGORITHMS)]
    steps = sorted((*OWN_STEPS[algorithm], *shared), key=lambda step: step.saves)
    return [*steps, Step(LAST_STEP[algorithm], 1, saves=CYCLES)]


@pytest.fixture(scope="module")
def served(prefect_server: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(*ALGORITHMS, api_url=prefect_server, folder=tmp_path_factory.mktemp("served")) as started:
        yield started


@pytest.fixture(scope="module")
def gateways(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, FaultyGateway]]:
    with ExitStack() as stack:
        yield {name: FaultyGateway(tmp_path_factory.mktemp(name), stack) for name in ALGORITHMS}


async def prepared(algorithm: str, gateway: FaultyGateway, folder: Path) -> Any:
    """A configuration that names the gateway by a credentials block, and starts from a model that has been taught."""
    block, settings = f"faulty-{algorithm}", gateway.settings
    await WhitneyCredentials(base_url=settings.base_url, api_key=settings.api_key).save(block, overwrite=True)
    teaching = tiny_config("sft", folder, cycles=6, name=f"taught-{algorithm}", credentials_block=block)
    state_id = (await flows.FLOWS["sft"](teaching))["state_id"]
    fields = {**SLOWLY, "credentials_block": block, **({"rewards": SHORT} if algorithm == "grpo" else {})}
    return tiny_config(algorithm, folder, state_id=state_id, cycles=CYCLES, save_every=1, **fields)


class Life:
    """A flow run of a deployment, attempt after attempt."""

    def __init__(self, served: Served, gateway: FaultyGateway, algorithm: str, config: Any) -> None:
        self.served = served
        self.gateway = gateway
        self.algorithm = algorithm
        self.config = config
        self.attempts = self.saved = 0
        self.flow_run_id = UUID(int=0)

    @property
    def folder(self) -> Path:
        return Path(self.config.output_dir) / self.config.name

    async def press(self) -> None:
        """Run, and from then on Retry."""
        self.attempts += 1
        if self.attempts == 1:
            self.flow_run_id = await self.served.press_run(self.algorithm, self.config)
        else:
            assert await self.served.press_retry(self.flow_run_id) == ["ACCEPT"]

    async def fail(self, step: Step) -> None:
        """One attempt that fails there, and leaves no session open."""
        self.gateway.fail(step.fault)
        await self.press()
        run = await self.served.ended(self.flow_run_id, self.attempts)
        assert state_of(run) == StateType.FAILED, step
        said = (run.state and run.state.message) or ""
        assert step.name in said, (step, said)
        assert "scripted fault" in said, (step, said)
        await self.gateway.all_closed(self.flow_run_id)
        self.saved = min(self.saved + step.saves, CYCLES)
        self.require_saved()

    async def lose_the_gateway(self) -> None:
        """One attempt whose gateway dies with an optimizer step executed and not on record; it is started again."""
        self.gateway.fail({"action": "crash", "kind": "optim_step", "when": "after"})
        await self.press()

        async def died() -> int | None:
            return self.gateway.process.process.poll()

        await until(died, "the gateway to die", self.served.log)
        self.gateway.start_again()
        run = await self.served.ended(self.flow_run_id, self.attempts)
        assert state_of(run) == StateType.FAILED
        await self.gateway.all_closed(self.flow_run_id)
        self.require_saved()

    def require_saved(self) -> None:
        states = self.folder / "states.jsonl"
        assert (len(lines(states)) if states.exists() else 0) == self.saved

    async def succeed(self) -> None:
        """The attempt that nothing happens to."""
        self.gateway.fail()
        await self.press()
        run = await self.served.ended(self.flow_run_id, self.attempts)
        assert state_of(run) == StateType.COMPLETED, run.state and run.state.message


async def live(life: Life, steps: list[Step]) -> None:
    undisturbed = life.config.model_copy(update={"name": f"{life.algorithm}-undisturbed"})
    reference = await flows.FLOWS[life.algorithm](undisturbed)
    for step in steps:
        await life.fail(step)
        if life.algorithm == "grpo" and step.name == "save_state":
            await life.lose_the_gateway()
    await life.succeed()
    gateway = life.gateway.process
    require_each_cycle_once(life.folder, reference, cycles=CYCLES)
    require_one_block_redone_at_most(gateway, life.flow_run_id, life.folder, reference)
    sessions = await life.gateway.all_closed(life.flow_run_id)
    assert len({session.labels[ATTEMPT] for session in sessions}) == len(sessions)
    # For people, the flow run says which session each attempt had.
    labels = (await read(life.flow_run_id)).labels
    shown = {key: value for key, value in labels.items() if key.startswith("whitney.session.")}
    assert shown == {f"whitney.session.{session.labels[ATTEMPT]}": session.session_id for session in sessions}
    # Of a finished run nothing is left to be done.
    await life.succeed()
    again = await life.gateway.all_closed(life.flow_run_id)
    assert [(one.session_id, one.runs) for one in again] == [(one.session_id, one.runs) for one in sessions]


# Each attempt is a process that imports Prefect. `-m slow` has every algorithm fail at every step.
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("all_of_them", [False, pytest.param(True, marks=pytest.mark.slow)])
async def test_a_run_that_fails_at_each_step_and_is_retried_ends_as_one_that_never_failed(
    all_of_them: bool, served: Served, gateways: dict[str, FaultyGateway], tmp_path: Path
) -> None:
    lives = [Life(served, gateways[name], name, await prepared(name, gateways[name], tmp_path)) for name in ALGORITHMS]
    await asyncio.gather(*(live(life, steps_of(life.algorithm, all_of_them=all_of_them)) for life in lives))
    printed = served.log.read_text()
    assert "scripted fault" in printed
    for gateway in gateways.values():
        assert gateway.settings.api_key.get_secret_value() not in printed
