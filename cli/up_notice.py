"""`.whitney/up.json`: by it the commands of a project folder find what `whitney up` runs there. No key is in it."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Self

from pydantic import TypeAdapter, ValidationError

from cli.run_data import PROJECT_DATA, PrefectAt, lives

NOTICE = PROJECT_DATA / "up.json"


@dataclass(frozen=True, slots=True)
class RunningUp:
    """A `whitney up`: its process, its Prefect server and, where it has started that one itself, the server's home."""

    pid: int
    prefect_api_url: str
    prefect_home: str | None

    @property
    def prefect(self) -> PrefectAt:
        """Its Prefect server. With its home a run can be gone on with after `whitney up` has ended."""
        return PrefectAt(self.prefect_api_url, Path(self.prefect_home) if self.prefect_home else None)

    def write(self) -> None:
        """Announce it: whole, or not at all. Without a password: whoever needs one has it in PREFECT_API_URL."""
        NOTICE.parent.mkdir(parents=True, exist_ok=True)
        beside = NOTICE.with_name(f".{NOTICE.name}.{self.pid}.tmp")
        beside.write_text(
            json.dumps(asdict(replace(self, prefect_api_url=self.prefect.shown))) + "\n", encoding="utf-8"
        )
        beside.replace(NOTICE)

    @classmethod
    def read(cls) -> Self | None:
        """What stands there; None where nothing does, or its process has ended without taking it down."""
        try:
            notice = TypeAdapter(cls).validate_json(NOTICE.read_bytes())
        except (OSError, ValidationError):
            return None
        return notice if lives(notice.pid) else None

    def take_down(self) -> None:
        """Withdraw it, unless it is another's by now."""
        there = RunningUp.read()
        if there is not None and there.pid == os.getpid():
            NOTICE.unlink(missing_ok=True)
