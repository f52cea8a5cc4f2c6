"""One line of `whitney doctor`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Finding:
    """How it stands, what was seen and, unless all is well, what to do."""

    level: Literal["ok", "warn", "fail"]
    subject: str
    seen: str
