"""`whitney smoke`: prove on the live endpoint that operations mean what we think."""

from __future__ import annotations

import asyncio
import uuid
from collections import Counter
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from cli.failures import UsageError, interruptible

if TYPE_CHECKING:
    from cli.smoke_checks import Check
    from whitney.client import WhitneyClient
    from whitney.types import CapabilityRow, RunUsage

LABELS = {"whitney.smoke": "true"}


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

    from cli.smoke_checks import CHECKS, NOT_TAKEN
    from whitney.client import WhitneyClient
    from whitney.settings import resolve_settings

    settings = resolve_settings()
    console = Console()
    async with WhitneyClient(settings) as client:
        row = _choose((await client.capabilities()).rows, model, provider)
        emulated = ", emulated" if row.emulated else ""
        console.print(f"{settings.base_url}: {row.provider}/{row.model}{emulated}", highlight=False)
        left_out = NOT_TAKEN.get(row.provider, set())
        checks = {name: check for name, check in CHECKS.items() if name not in left_out}
        table = Table("check", "", "what was seen")
        passed, usage = await _run_checks(client, row, checks, table)
    console.print(table)
    operations = sum(usage.values()) - sum(usage[kind] for kind in ("prefill", "sampled", "trained"))
    console.print(
        f"Billed: {operations} operations; tokens: {usage['prefill']} prefill, {usage['sampled']} sampled, "
        f"{usage['trained']} trained. Session closed.",
        highlight=False,
    )
    return 0 if passed else 1


def _choose(rows: list[CapabilityRow], model: str | None, provider: str | None) -> CapabilityRow:
    for row in rows:
        if model in (None, row.model) and provider in (None, row.provider):
            return row
    served = ", ".join(f"{row.provider}/{row.model}" for row in rows) or "nothing"
    raise UsageError(f"--provider {provider or 'any'} --model {model or 'any'}: not served there; it serves {served}")


async def _run_checks(
    client: WhitneyClient, row: CapabilityRow, checks: dict[str, Check], table: Table
) -> tuple[bool, Counter[str]]:
    """Every check on a run of its own, in one session that is closed whatever happens: (all passed, the bill)."""
    from cli.smoke_checks import CheckFailedError, Probe
    from whitney.errors import ApiError, OperationError

    usage: Counter[str] = Counter()
    passed = True
    key = f"smoke-{uuid.uuid4().hex}"
    session = await client.create_session(create_key=key, labels=LABELS)
    try:
        for name, check in checks.items():
            run_id = await _open_run(client, session.session_id, row, f"{key}-{name}")
            try:
                seen, agrees = await check(Probe(client, run_id)), True
            except (CheckFailedError, OperationError, ApiError) as error:
                seen, agrees = str(error), False
            finally:
                await _end_run(client, run_id, usage)
            passed &= agrees
            table.add_row(name, "[green]ok[/]" if agrees else "[red]FAIL[/]", escape(seen))
    finally:
        await client.close_session(session.session_id)
    return passed, usage


async def _open_run(client: WhitneyClient, session_id: str, row: CapabilityRow, key: str) -> str:
    from whitney.types import CreateRun, LoraConfig

    lora = LoraConfig(rank=min(8, row.max_lora_rank), alpha=16.0, seed=0)
    request = CreateRun(create_key=key, provider=row.provider, model=row.model, lora=lora)
    return (await client.create_run(session_id, request)).run_id


async def _end_run(client: WhitneyClient, run_id: str, usage: Counter[str]) -> None:
    """Cancel, wait until terminal, and note the bill."""
    await client.cancel(run_id)
    billed: RunUsage = (await client.wait_terminal(run_id)).usage
    usage.update(billed.operations)
    usage.update(prefill=billed.prefill_tokens, sampled=billed.sampled_tokens, trained=billed.trained_tokens)
