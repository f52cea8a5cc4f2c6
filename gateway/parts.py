"""What the gateway's rules share: one of each, made at the start and handed to whoever needs them."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field

from gateway.doorbell import Doorbell
from gateway.emulation import ProviderRules
from gateway.faults import Faults
from gateway.ledger import Ledger
from gateway.providers.base import Provider
from gateway.scheduler import Scheduler
from gateway.storage import DataDirectory
from whitney.types import CapabilityRow

logger = logging.getLogger("gateway")


@dataclass(frozen=True, slots=True)
class Parts:
    """The pieces of one gateway.

    `rules` say what is accepted and under which provider's name; `capabilities` maps a model's name to its row;
    `reduction` is "sum" or "mean"; `session_ttl_s` of 0 means never; `clock` gives Unix seconds.
    """

    data: DataDirectory
    ledger: Ledger
    provider: Provider
    rules: ProviderRules
    scheduler: Scheduler
    faults: Faults
    reduction: str
    session_ttl_s: float
    clock: Callable[[], float]
    doorbell: Doorbell = field(default_factory=Doorbell)
    capabilities: dict[str, CapabilityRow] = field(default_factory=dict)


def report(what: str, error: BaseException) -> None:
    """Log an unexpected exception by its type and place, without its message: that could quote tokens."""
    frames = reversed(traceback.extract_tb(error.__traceback__))
    places = " < ".join(f"{frame.name} ({frame.filename}:{frame.lineno})" for frame in frames)
    logger.error("%s: %s at %s", what, type(error).__name__, places)
