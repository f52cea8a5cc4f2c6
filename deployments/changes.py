"""What registering did, or would do: one line for each thing."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Verb = Literal["created", "changed", "unchanged", "left out"]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing on the Prefect server, and how it came out; `details` name what changed, or what to know of it."""

    kind: str
    name: str
    verb: Verb
    details: tuple[str, ...] = ()

    def line(self, *, dry_run: bool) -> str:
        """For the terminal; of a dry run, what would become of it."""
        verb = f"would be {self.verb}" if dry_run and self.verb in ("created", "changed") else self.verb
        return f"{self.kind} {self.name}: {verb}" + (f" ({', '.join(self.details)})" if self.details else "")
