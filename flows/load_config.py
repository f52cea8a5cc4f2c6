"""From a TOML file and `--set a.b=c` to a checked configuration; every mistake names the field and the way out."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from algorithms.names import did_you_mean
from flows.config import CONFIGS, ConfigError, FlowConfig
from flows.config.mistakes import mistakes
from flows.config.pipeline import PIPELINE, PipelineConfig
from flows.overrides import with_overrides
from flows.stage_files import with_stage_files

__all__ = [
    "CONFIGS",
    "AnyConfig",
    "ConfigError",
    "load_algorithm",
    "load_config",
    "parse_config",
    "with_overrides",
]

LARGEST_BYTES = 512 * 1024
"""Of a configuration file: more than Prefect would take as a flow's parameters, and seconds to parse."""

AnyConfig = FlowConfig | PipelineConfig
"""What a configuration file can say: one algorithm's, or a pipeline of several."""


def load_config(path: Path, overrides: Iterable[str] = ()) -> tuple[str, AnyConfig]:
    """Read a TOML file, put `a.b=c` overrides over it, and check it: (algorithm, configuration).

    `a.b=none` takes a field of the file away: TOML has no value for "not set". Of a pipeline the algorithm is
    "pipeline"; a stage's `config` may be the path of a file, from the pipeline's own folder on.

    Raises:
        ConfigError: the file is missing or not TOML, names no known algorithm, or a field is unknown or out of range.
    """
    table = with_stage_files(_read_table(path), str(path), path.parent, _read_table)
    # What is still a path came by --set, so it begins where the command does.
    table = with_stage_files(with_overrides(table, overrides), "--set", Path(), _read_table)
    return parse_config(table, where=str(path))


def load_algorithm(path: Path, overrides: Iterable[str] = ()) -> tuple[str, FlowConfig]:
    """The same of a file that must be one algorithm's.

    Raises:
        ConfigError: as for `load_config`; or it is a pipeline.
    """
    algorithm, config = load_config(path, overrides)
    if isinstance(config, PipelineConfig):
        raise ConfigError(f"{path}: a pipeline, where the configuration of one algorithm is needed")
    return algorithm, config


def parse_config(table: Mapping[str, Any], *, where: str = "configuration") -> tuple[str, AnyConfig]:
    """Check a table that carries `algorithm` beside the algorithm's own fields.

    Raises:
        ConfigError: as for `load_config`.
    """
    fields = dict(table)
    models: dict[str, type[FlowConfig] | type[PipelineConfig]] = {**CONFIGS, PIPELINE: PipelineConfig}
    known = ", ".join(sorted(models))
    if "algorithm" not in fields:
        raise ConfigError(f'{where}: algorithm is missing: begin with algorithm = "grpo", say; known: {known}')
    algorithm = fields.pop("algorithm")
    if not isinstance(algorithm, str) or algorithm not in models:
        hint = did_you_mean(str(algorithm), models)
        raise ConfigError(f"{where}: algorithm = {algorithm!r} is unknown; {hint}known: {known}")
    model = models[algorithm]
    try:
        return algorithm, model.model_validate(fields)
    except ValidationError as error:
        raise ConfigError("\n".join(f"{where}: {line}" for line in mistakes(model, error, fields))) from None


def _read_table(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as file:
            read = file.read(LARGEST_BYTES + 1)
        if len(read) > LARGEST_BYTES:
            raise ConfigError(
                f"{path}: larger than {LARGEST_BYTES // 1024} KiB, which no configuration is; examples belong into a "
                "file of their own, which data.source names"
            )
        return tomllib.loads(read.decode("utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file; `whitney init grpo` writes a commented one to start from") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from None
