"""A gateway that is killed at any point: nothing is executed twice, nothing half-applied, nothing left open."""

from __future__ import annotations

import asyncio
import hashlib
import random
import signal
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import closing
from itertools import product
from pathlib import Path

import pytest
from killable import Killable, Trainer, client_of, killable
from safetensors import safe_open

from gateway.faults import CRASH_EXIT_CODE
from whitney.errors import WhitneyError
from whitney.types import RUN_KINDS, SAMPLER_KINDS, TERMINAL_OPERATION, TERMINAL_RUN

CYCLES = 2
CLEAR = {"run_lost", "cancelled", "run_not_active", "not_sent"}


@pytest.fixture
async def reference(tmp_path: Path) -> AsyncIterator[str]:
    """The SHA-256 of the state that undisturbed training ends with."""
    async with killable(tmp_path / "undisturbed") as gateway, client_of(gateway) as client:
        yield await Trainer(client, "reference", CYCLES).train()


def _code(error: WhitneyError) -> str:
    return str(getattr(error, "code", type(error).__name__))


async def _check(gateway: Killable, trainers: Sequence[Trainer]) -> None:
    """What must hold, read from the ledger's file and asked of the gateway that lives now."""
    for trainer in trainers:
        assert {_code(error) for error in trainer.errors} <= CLEAR, trainer.errors
        session = await trainer.client.create_session(create_key=trainer.name)
        assert session.session_id == trainer.session_id, "the same create_key names another session after a kill"
        assert {run.status for run in session.runs} <= TERMINAL_RUN
        await trainer.client.close_session(session.session_id)
    with closing(sqlite3.connect(gateway.data_dir / "ledger.sqlite")) as ledger:
        assert ledger.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        operations = ledger.execute("SELECT status, executions, kind FROM operations").fetchall()
        billed = ledger.execute("SELECT sum(operations) FROM billing").fetchone()[0]
        files = ledger.execute("SELECT kind, file_id, size_bytes, sha256 FROM files").fetchall()
    assert {status for status, _, _ in operations} <= TERMINAL_OPERATION
    assert {executions for _, executions, _ in operations} <= {0, 1}
    assert all(executions == 1 for status, executions, _ in operations if status == "succeeded")
    assert billed == sum(status == "succeeded" for status, _, _ in operations)
    for kind, file_id, size_bytes, sha256 in files:
        name = f"states/{file_id}.safetensors" if kind == "state" else f"artifacts/{file_id}.tar.gz"
        content = (gateway.data_dir / name).read_bytes()
        assert (len(content), hashlib.sha256(content).hexdigest()) == (size_bytes, sha256)
        if kind == "state":
            with safe_open(gateway.data_dir / name, "numpy") as state:
                assert state.keys()
    on_disk = [path for folder in ("states", "artifacts") for path in (gateway.data_dir / folder).iterdir()]
    assert len(on_disk) == len(files), "files that nobody has heard of outlive the next start"


async def test_a_crash_before_or_after_any_kind_of_operation_costs_a_run_and_nothing_else(
    tmp_path: Path, reference: str
) -> None:
    points = list(product((*RUN_KINDS, *SAMPLER_KINDS), ("before", "after")))
    async with killable(tmp_path / "crashing") as gateway, client_of(gateway) as client:
        trainers = []
        for kind, when in points:
            await gateway.suffer({"action": "crash", "kind": kind, "when": when, "nth": 2})
            trainer = Trainer(client, f"{kind}-{when}", CYCLES)
            training = asyncio.create_task(trainer.train())
            assert await gateway.dead() == CRASH_EXIT_CODE, (kind, when)
            await gateway.live()
            assert await training == reference, (kind, when)
            assert trainer.errors, (kind, when)
            trainers.append(trainer)
        await _check(gateway, trainers)


async def test_kills_at_random_moments_under_load_execute_nothing_twice_and_leave_nothing_half_done(
    tmp_path: Path, reference: str
) -> None:
    chance = random.Random(4)
    async with killable(tmp_path / "killed") as gateway, client_of(gateway) as client:
        trainers = [Trainer(client, f"trainer-{number}", CYCLES) for number in range(3)]
        training = asyncio.gather(*(trainer.train() for trainer in trainers))
        while not training.done() and len(gateway.deaths) < 8:
            await asyncio.sleep(chance.uniform(0.0, 0.25))
            gateway.process.kill()
            assert await gateway.dead() == -signal.SIGKILL
            await gateway.live()
        assert await training == [reference] * len(trainers)
        assert sum(len(trainer.errors) for trainer in trainers) >= len(trainers)
        await _check(gateway, trainers)
