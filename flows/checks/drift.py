"""Whether a run that goes on is still the run that began: the configuration, the data, the template, the model.

A Retry adopts finished blocks. With other data or another learning rate behind them, the adapter would be one that no
configuration describes. So what has changed is refused, field by field; whoever means it says so.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import ValidationError

from flows.config import BudgetConfig, ConfigError, FlowConfig

ALLOW_DRIFT = "WHITNEY_ALLOW_DRIFT"
"""Environment variable; "1" lets a run go on with what has changed, and writes the change into config.json."""

# Of a run's record, the parts that decide what is trained. Versions of code and packages are recorded, not compared.
COMPARED = ("algorithm", "config", "data", "template_sha256", "tokenizer_sha256", "capability")

# Fields of those that may change without changing what is trained.
WITHOUT_EFFECT = frozenset(
    {
        "config.name",
        "config.output_dir",
        "config.credentials_block",
        "config.keep_states",
        "config.session_limit",
        "config.skip_unchanged",
        "config.approval.above_operations",
        "config.approval.timeout_hours",
        *(f"config.budget.{field}" for field in BudgetConfig.model_fields),
        "data.description",
        "capability.operations",
        "capability.emulated",
        "capability.max_lora_rank",
    }
)

FIXED = ("algorithm", "seed", "save_every", "evaluation.every", "model.name", "model.provider", "lora")
"""Fields and sections that finished blocks and measurements are matched by: they cannot change within a run, meant or
not."""

Change = tuple[Any, Any]
"""(before, now)."""


def drift_allowed() -> bool:
    """Whether the environment says that changes are meant."""
    return os.environ.get(ALLOW_DRIFT, "") == "1"


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Change]:
    """Every compared field of two records (`Prepared.record`) that differs, by its dotted path."""
    old, new = _deciding(before), _deciding(now)
    paths = sorted((old | new).keys())
    return {path: (old.get(path), new.get(path)) for path in paths if old.get(path) != new.get(path)}


def fingerprint(record: Mapping[str, Any]) -> str:
    """The same for two records that differ in nothing: what decides what is trained, as a SHA-256."""
    return hashlib.sha256(json.dumps(_deciding(record), sort_keys=True).encode()).hexdigest()


def _deciding(record: Mapping[str, Any]) -> dict[str, Any]:
    """Every compared field of a record, by its dotted path."""
    flat = dict(_flat({key: record.get(key) for key in COMPARED}))
    return {path: value for path, value in flat.items() if path not in WITHOUT_EFFECT}


def is_fixed(path: str) -> bool:
    """Whether a field, by its path in a record or a configuration, is one of `FIXED` or within one."""
    name = path.removeprefix("config.")
    return any(name == fixed or name.startswith(f"{fixed}.") for fixed in FIXED)


def in_lines(found: Mapping[str, Change]) -> str:
    """A difference as a person reads it, a line a field, by the name it has in a configuration file."""
    return "\n".join(f"  {path.removeprefix('config.')}: {old!r} → {new!r}" for path, (old, new) in found.items())


def with_later_fields(record: Mapping[str, Any], model: type[FlowConfig]) -> dict[str, Any]:
    """A record with the fields that its version did not know yet: the run behaved as their defaults say.

    One that this version cannot read is left as it is.
    """
    try:
        config = model.model_validate(record["config"]).model_dump(mode="json")
    except ValidationError:
        return dict(record)
    return {**record, "config": config}


def require_no_drift(before: Mapping[str, Any], now: Mapping[str, Any]) -> dict[str, Change]:
    """What has changed, where that is allowed.

    Raises:
        ConfigError: something has, and it is not, or is one of `FIXED`.
    """
    found = changes(before, now)
    if fixed := {path: change for path, change in found.items() if is_fixed(path)}:
        raise ConfigError(
            f"what a run's finished blocks are matched by cannot change within it:\n{in_lines(fixed)}\n"
            "Undo the change, or start a new run"
        )
    if found and not drift_allowed():
        raise ConfigError(
            f"this run began with something else, and finished blocks would be mixed with it:\n{in_lines(found)}\n"
            "Undo the change; or start a new run; or, if it is meant, `whitney run --resume RUN --allow-drift` goes on "
            f"({ALLOW_DRIFT}=1 in the environment of a worker)"
        )
    return found


def _flat(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", item
