"""What the parts of a run will ask for: a block of cycles, a measurement. Sums of these are `planned_operations`.

Without what is drawn again (DAPO): a part is begun where it can come to its end.
"""

from __future__ import annotations

from collections import Counter

from flows.config import DapoConfig, FlowConfig
from flows.counts.operations import SNAPSHOT, in_measurement, planned_operations
from flows.counts.sent import Heldout, Sent

SAVE, EXPORT = "save_state", "export_lora"


def planned_block(algorithm: str, config: FlowConfig, cycles: int, sent: Sent | None = None) -> Counter[str]:
    """A block of so many cycles, its `save_state` and a frozen run's snapshot included; `sent`: by them."""
    block = _of_cycles(algorithm, config, cycles, sent)
    del block[EXPORT]
    return block


def planned_measurement(config: FlowConfig, heldout: Heldout) -> Counter[str]:
    """A measurement with its snapshot; nothing where none is made."""
    if not (config.evaluation.enabled and heldout.examples):
        return Counter()
    snapshot = bool(config.evaluation_terms())
    return +(in_measurement(config, heldout) + Counter({SNAPSHOT: snapshot}))


def least_useful(algorithm: str, config: FlowConfig, heldout: int, sent: Sent | None = None) -> Counter[str]:
    """The least that leaves an adapter: what is measured before, the first block, the export.

    `sent` is of the first block and a measurement; default: everything.
    """
    before = planned_measurement(config, sent.heldout if sent else Heldout(heldout, heldout, heldout))
    first = _of_cycles(algorithm, config, min(config.save_every, config.cycles), sent)
    shared = Counter({SNAPSHOT: min(before[SNAPSHOT], first[SNAPSHOT], 1)})  # both look at the same weights
    return before + first - shared


def _of_cycles(algorithm: str, config: FlowConfig, cycles: int, sent: Sent | None) -> Counter[str]:
    """A run of one block that measures nothing."""
    changes: dict[str, object] = {"cycles": cycles, "save_every": cycles}
    if isinstance(config, DapoConfig):
        changes["resample"] = config.resample.model_copy(update={"max_operations": 0})
    return planned_operations(algorithm, config.model_copy(update=changes), 0, sent)
