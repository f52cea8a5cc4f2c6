"""What the parts of a run will ask for: a block of cycles, a measurement. Sums of these are `planned_operations`.

Without what is drawn again (DAPO): a part is begun where it can come to its end.
"""

from __future__ import annotations

from collections import Counter

from flows.checks.planned import planned_operations
from flows.config import DapoConfig, FlowConfig

SAVE, EXPORT, SNAPSHOT = "save_state", "export_lora", "save_weights_for_sampler"


def planned_block(algorithm: str, config: FlowConfig, cycles: int) -> Counter[str]:
    """A block of so many cycles, its `save_state` and a frozen run's snapshot included."""
    block = _of_cycles(algorithm, config, cycles)
    del block[EXPORT]
    return block


def planned_measurement(algorithm: str, config: FlowConfig, heldout: int) -> Counter[str]:
    """A measurement of `heldout` examples, with its snapshot; nothing where none is made."""
    if not (config.evaluation.enabled and heldout):
        return Counter()
    quiet = config.evaluation.model_copy(update={"every": None})
    once = config.model_copy(update={"cycles": 1, "save_every": 1, "evaluation": quiet})
    both = planned_operations(algorithm, once, heldout) - planned_operations(algorithm, once, 0)
    one = Counter({kind: count // 2 for kind, count in both.items() if kind != SNAPSHOT})  # before and after
    return one + Counter({SNAPSHOT: min(both[SNAPSHOT], 1)})


def least_useful(algorithm: str, config: FlowConfig, heldout: int) -> Counter[str]:
    """The least that leaves an adapter: what is measured before, the first block, the export."""
    before = planned_measurement(algorithm, config, heldout)
    first = _of_cycles(algorithm, config, min(config.save_every, config.cycles))
    shared = Counter({SNAPSHOT: min(before[SNAPSHOT], first[SNAPSHOT], 1)})  # both look at the same weights
    return before + first - shared


def _of_cycles(algorithm: str, config: FlowConfig, cycles: int) -> Counter[str]:
    """A run of one block that measures nothing."""
    changes: dict[str, object] = {"cycles": cycles, "save_every": cycles}
    if isinstance(config, DapoConfig):
        changes["resample"] = config.resample.model_copy(update={"max_operations": 0})
    return planned_operations(algorithm, config.model_copy(update=changes), 0)
