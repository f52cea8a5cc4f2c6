"""The lineage of a run, from its folder; and the bill, from the endpoint where it can be asked."""

from __future__ import annotations

import asyncio
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from cli.columns import columns
from cli.failures import UsageError
from cli.run_data import Endpoints
from cli.run_files import TABLE, read_json, read_lines
from tasks.lineage import (
    Link,
    Redone,
    billed_by_attempt,
    breaks,
    chain,
    count_operations,
    count_tokens,
    redone,
    summed,
    told,
    usage_of,
)
from whitney.client import WhitneyClient
from whitney.errors import ConfigurationError, NoEndpointError, WhitneyError
from whitney.labels import FLOW_RUN
from whitney.settings import WhitneySettings, local_gateway, resolve_settings
from whitney.types import RunUsage

PATIENCE_S = 15.0
RESTORE = "restore it from a copy"
HEAD = ("CYCLE", "STATE", "FROM", "RUN", "ATTEMPT", "OPERATIONS", "TOKENS")

Row = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunLineage:
    """What a run folder records of its chain, and what Whitney has billed (None: not known, `note` says why).

    `beside` is what evaluations and the export cost, by attempt; None as long as the run has not ended.
    `redone_on_record` is what summary.json says was done again; None where it does not say, or is not there yet.
    """

    folder: Path
    algorithm: str
    flow_run_id: str
    credentials_block: str | None
    links: list[Link]
    metrics: list[Row]
    beside: list[tuple[int, Row]] | None
    redone_on_record: dict[str, Any] | None = None
    billed: dict[int, RunUsage] | None = None
    note: str | None = None

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What stands in the folder.

        Raises:
            UsageError: a file cannot be read, or is not as a run writes it.
        """
        states = read_lines(folder / "states.jsonl", TABLE, RESTORE)
        metrics = read_lines(folder / "metrics.jsonl", TABLE, RESTORE)
        summary = read_json(folder / "summary.json", TABLE, RESTORE)
        config = read_json(folder / "config.json", TABLE, RESTORE) or {}
        try:
            parts = summary.get("beside_blocks") if summary else None
            return cls(
                folder=folder,
                algorithm=config["algorithm"],
                flow_run_id=config["flow_run_id"],
                credentials_block=config["config"].get("credentials_block"),
                links=chain(states, metrics),
                metrics=metrics,
                beside=None if parts is None else [(part["attempt"], part) for part in parts],
                redone_on_record=_redone_in(summary) if summary else None,
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UsageError(f"{folder} is not as a run leaves it: {type(error).__name__} {error}") from error

    def with_bill(self) -> Self:
        """The same with what Whitney has billed, where that can be found out."""
        endpoints = Endpoints.read(self.folder)
        began = endpoints.whitney_base_url if endpoints else None
        try:
            settings = self._settings(endpoints)
        except NoEndpointError as error:
            return replace(self, note=f"what was billed is not known: {error}{_trained_at(began)}")
        except (ConfigurationError, ValueError) as error:
            return replace(self, note=f"what was billed is not known: {error}")
        try:
            billed = asyncio.run(_bill(settings, self.flow_run_id))
        except WhitneyError as error:
            return replace(self, note=f"what was billed is not known: {error}")
        if billed:
            return replace(self, billed=billed)
        elsewhere = _trained_at(began) if began != settings.base_url else ""
        return replace(self, note=f"what was billed is not known: {settings.base_url} has no session of it{elsewhere}")

    def _settings(self, endpoints: Endpoints | None) -> WhitneySettings:
        """Where the run was billed: at its own gateway, if it had one, whatever else is configured."""
        if endpoints and endpoints.gateway_data_dir:
            if own := local_gateway(Path(endpoints.gateway_data_dir)):
                return own
            known_again = f"; known again while `whitney run --resume {shlex.quote(str(self.folder))}` runs it"
            raise ConfigurationError(f"the run's own gateway has ended{'' if self.beside is not None else known_again}")
        if self.credentials_block is None:
            return resolve_settings()
        from prefect.settings import PREFECT_API_URL

        from tasks.credentials import settings_for

        if not PREFECT_API_URL.value():  # Prefect would start a server of its own, which has no such block
            raise ConfigurationError(
                f"the endpoint is named by the block {self.credentials_block}: set PREFECT_API_URL to where that is"
            )
        return settings_for(self.credentials_block)

    @property
    def breaks(self) -> list[str]:
        """What is wrong with the chain."""
        return breaks(self.links, self.metrics)

    @property
    def blocks(self) -> RunUsage:
        """What the saved blocks account for."""
        return summed(link.usage for link in self.links)

    @property
    def beyond(self) -> Redone | None:
        """What was billed beyond what is on record; None where the bill is not known."""
        if self.billed is None:
            return None
        attempt_of = {cycle: link.attempt for link in self.links for cycle in link.cycles}
        cycles = [(attempt_of.get(int(row["cycle"])), row) for row in self.metrics]
        return redone(self.billed, [*cycles, *(self.beside or [])])

    @property
    def overdrawn(self) -> bool:
        """Whether the record holds more than was billed: one of the two is wrong."""
        beyond = self.beyond
        return beyond is not None and any(count < 0 for count in _counts(beyond.total))

    @property
    def wrong(self) -> bool:
        """Whether anything does not add up."""
        return bool(self.breaks) or self.overdrawn

    def show(self) -> None:
        """Print it for people."""
        print(f"{self.folder}: {self.algorithm}, flow run {self.flow_run_id}")
        if not self.links:
            print("no block has been saved yet")
        else:
            rows = [
                (
                    link.label,
                    link.state_id,
                    link.parent_state_id or "the beginning",
                    link.run_id,
                    link.attempt,
                    count_operations(link.usage),
                    count_tokens(link.usage),
                )
                for link in self.links
            ]
            print("\n".join(columns(HEAD, rows)))
        for line in self._verdict():
            print(line)

    def _verdict(self) -> list[str]:
        cycles = sum(len(link.cycles) for link in self.links)
        lines = [f"BROKEN: {one}" for one in self.breaks]
        if self.links and not lines:
            lines.append(f"unbroken: each of {cycles} cycle{'' if cycles == 1 else 's'} is in the chain once")
        lines.append(f"blocks:   {told(self.blocks)}")
        if self.beside is not None:
            lines.append(f"others:   {told(summed(usage_of(row) for _, row in self.beside))} (evaluations, export)")
        if self.billed is None or (beyond := self.beyond) is None:
            if again := self.redone_on_record:
                counted = f"{again['operations']:,} operations, {again['tokens']:,} tokens"
                lines.append(f"redone:   {counted} (as summary.json has it)")
            return [*lines, str(self.note)]
        bill = "; ".join(f"attempt {attempt}: {told(usage)}" for attempt, usage in self.billed.items())
        lines.append(f"billed:   {told(summed(self.billed.values()))} ({bill})")
        if self.beside is not None:
            lines.append(f"redone:   {beyond}")
        else:
            lines.append(f"the rest: {beyond}: evaluations, and what was begun and is not saved; the run has not ended")
        if self.overdrawn:
            lines.append("WRONG: the folder records more than was billed: it is not of this endpoint, or was changed")
        return lines

    def as_json(self) -> dict[str, Any]:
        """The same for machines.

        `redone` is as summary.json has it where the bill is not known (`billed` is null), and null where the run has
        not ended.
        """
        beyond = self.beyond
        again = beyond.as_json() if beyond else self.redone_on_record
        return {
            "run_folder": str(self.folder),
            "algorithm": self.algorithm,
            "flow_run_id": self.flow_run_id,
            "ended": self.beside is not None,
            "unbroken": not self.breaks,
            "breaks": self.breaks,
            "blocks": [
                {
                    "block": link.block,
                    "cycles": list(link.cycles),
                    "state_id": link.state_id,
                    "parent_state_id": link.parent_state_id,
                    "run_id": link.run_id,
                    "attempt": link.attempt,
                    "usage": link.usage.model_dump(),
                }
                for link in self.links
            ],
            "beside": [{"attempt": attempt, "usage": usage_of(row).model_dump()} for attempt, row in self.beside or []],
            "billed": {str(attempt): usage.model_dump() for attempt, usage in (self.billed or {}).items()} or None,
            "beyond": beyond and beyond.as_json(),
            "redone": again if self.beside is not None else None,
            "note": self.note,
        }


async def _bill(settings: WhitneySettings, flow_run_id: str) -> dict[int, RunUsage]:
    impatient = settings.model_copy(update={"retry_deadline_s": PATIENCE_S})
    async with WhitneyClient(impatient) as client:
        return billed_by_attempt(await client.list_sessions(label=(FLOW_RUN, flow_run_id)))


def _trained_at(base_url: str | None) -> str:
    return f"; the run was trained at {base_url}" if base_url else ""


def _redone_in(summary: dict[str, Any]) -> dict[str, Any] | None:
    """Raises KeyError, TypeError or ValueError where it is not as a run writes it."""
    again = summary.get("redone")
    return again and {**again, "operations": int(again["operations"]), "tokens": int(again["tokens"])}


def _counts(usage: RunUsage) -> list[int]:
    return [*usage.operations.values(), usage.prefill_tokens, usage.sampled_tokens, usage.trained_tokens]
