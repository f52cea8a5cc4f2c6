"""`whitney smoke`: prove on the live endpoint that operations mean what we think."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from cli.failures import CommandFailedError, UsageError, interruptible

if TYPE_CHECKING:
    from cli.smoke_checks import Check
    from whitney.client import WhitneyClient
    from whitney.types import CapabilityRow, RunUsage

LABELS = {"whitney.smoke": "true"}


@dataclass(slots=True)
class Bill:
    """What the checks' runs were billed."""

    operations: Counter[str] = field(default_factory=Counter)
    tokens: Counter[str] = field(default_factory=Counter)

    def add(self, usage: RunUsage) -> None:
        """One run more."""
        self.operations.update(usage.operations)
        self.tokens.update(prefill=usage.prefill_tokens, sampled=usage.sampled_tokens, trained=usage.trained_tokens)

    def __str__(self) -> str:
        tokens = ", ".join(f"{count} {kind}" for kind, count in self.tokens.items())
        return f"{self.operations.total()} operations; tokens: {tokens}"


def smoke(*, model: str | None = None, provider: str | None = None) -> int:
    """Prove on the live endpoint that loss_config, clip and the log-prob slice mean what we think.

    Opens one session with a small run for each check, and closes all of it. What that bills is printed; a few hundred
    tokens.

    Parameters
    ----------
    model
        Model to ask; default: the endpoint's first.
    provider
        Provider to ask; default: the first that serves the model.
    """
    with interruptible():
        return asyncio.run(_smoke(model, provider))


async def _smoke(model: str | None, provider: str | None) -> int:
    from rich.console import Console

    from cli.greeting import greeting
    from cli.smoke_checks import CHECKS, NOT_TAKEN
    from cli.terminal import sayer
    from whitney.client import WhitneyClient
    from whitney.settings import resolve_settings

    settings = resolve_settings()
    console = Console()
    async with WhitneyClient(settings) as client:
        row = _choose(await greeting(settings, sayer(console)), model, provider)
        emulated = ", emulated" if row.emulated else ""
        console.print(f"{settings.base_url}: {row.provider}/{row.model}{emulated}", highlight=False)
        left_out = NOT_TAKEN.get(row.provider, set())
        checks = {name: check for name, check in CHECKS.items() if name not in left_out}
        table = Table("check", "", "what was seen")
        passed, bill = await _run_checks(client, row, checks, table)
    console.print(table)
    console.print(f"Billed: {bill}. Session closed.", highlight=False)
    return 0 if passed else 1


def _choose(rows: list[CapabilityRow], model: str | None, provider: str | None) -> CapabilityRow:
    for row in rows:
        if model in (None, row.model) and provider in (None, row.provider):
            return row
    served = ", ".join(f"{row.provider}/{row.model}" for row in rows) or "nothing"
    raise UsageError(f"--provider {provider or 'any'} --model {model or 'any'}: not served there; it serves {served}")


async def _run_checks(
    client: WhitneyClient, row: CapabilityRow, checks: dict[str, Check], table: Table
) -> tuple[bool, Bill]:
    """Every check on a run of its own, in one session that is closed whatever happens: (all passed, the bill).

    Raises:
        CommandFailedError: the endpoint fails in between. A session was opened, so it is no slip of the user's.
    """
    from whitney.errors import WhitneyError

    bill = Bill()
    passed = True
    key = f"smoke-{uuid.uuid4().hex}"
    session_id = (await client.create_session(create_key=key, labels=LABELS)).session_id
    try:
        try:
            for name, check in checks.items():
                run_id = await _open_run(client, session_id, row, f"{key}-{name}")
                try:
                    agrees, seen = await _verdict(check, client, run_id)
                finally:
                    await _end_run(client, run_id, bill)
                passed &= agrees
                table.add_row(name, "[green]ok[/]" if agrees else "[red]FAIL[/]", escape(seen))
        finally:
            await client.close_session(session_id)
    except WhitneyError as error:
        advice = f"if session {session_id} is still open: whitney reap --session {session_id}"
        raise CommandFailedError(f"{error}; {advice}") from error
    return passed, bill


async def _verdict(check: Check, client: WhitneyClient, run_id: str) -> tuple[bool, str]:
    """Whether the endpoint does what we think, and what was seen; a refusal is an answer too."""
    from cli.smoke_checks import CheckFailedError, Probe
    from whitney.errors import ApiError, OperationError

    try:
        return True, await check(Probe(client, run_id))
    except (CheckFailedError, OperationError, ApiError) as error:
        return False, str(error)


async def _open_run(client: WhitneyClient, session_id: str, row: CapabilityRow, key: str) -> str:
    from whitney.types import CreateRun, LoraConfig

    lora = LoraConfig(rank=min(8, row.max_lora_rank), alpha=16.0, seed=0)
    request = CreateRun(create_key=key, provider=row.provider, model=row.model, lora=lora)
    return (await client.create_run(session_id, request)).run_id


async def _end_run(client: WhitneyClient, run_id: str, bill: Bill) -> None:
    """Cancel, wait until terminal, and note the bill."""
    await client.cancel(run_id)
    bill.add((await client.wait_terminal(run_id)).usage)
