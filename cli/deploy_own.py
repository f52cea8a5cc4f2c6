"""A user's own configuration as a deployment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from cli.deploy_options import When
from cli.failures import UsageError

if TYPE_CHECKING:
    from deployments.prefect_file import Entry
    from flows.load_config import AnyConfig


def own_entry(path: Path, overrides: tuple[str, ...], when: When) -> Entry:
    """The deployment of a TOML file, checked as `whitney run` checks it.

    Relative paths in it stay relative: a run works in the folder where it was deployed from, and there they mean what
    they mean to `whitney run`. Absolute ones would tie the configuration to this machine, and a fingerprint to a path.

    Raises:
        UsageError: the name or the schedule cannot be used.
        ConfigError, DataError, RenderingError, ModelError: as `whitney run`.
    """
    from cli.check_config import check_config
    from deployments.names import SESSION_LIMIT
    from deployments.prefect_file import Entry, shipped
    from flows.config.sections import NAME
    from flows.load_config import load_config

    algorithm, config = load_config(path, overrides)
    name = when.name or path.stem
    if not re.fullmatch(NAME, name):
        raise UsageError(f"--name {name!r}: letters, digits, '.', '_' and '-', at most 80, the first of them no sign")
    schedules, overlap = when.schedules(), when.policy()
    entrypoint = f"flows.{algorithm}.{algorithm}"
    if any((entry.entrypoint, entry.name) == (entrypoint, name) for entry in shipped()):
        raise UsageError(
            f"{algorithm}/{name} is one of this project's deployments, and `whitney deploy` would put its own "
            "configuration back: give yours another name, --name mine"
        )
    check_config(algorithm, config)
    written = _written(config)
    return Entry(
        name=name,
        entrypoint=entrypoint,
        description=f"{algorithm}, from {path.name}.",
        parameters={"config": {"session_limit": SESSION_LIMIT} | written},
        schedules=schedules,
        concurrency_limit=overlap,
    )


def _written(config: AnyConfig) -> dict[str, object]:
    """What the file sets, and no defaults: the form in the UI shows those, and they may get better."""
    return config.model_dump(mode="json", exclude_unset=True)
