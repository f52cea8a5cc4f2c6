"""The sizes of a model: those its reader gives, of the table of known ones, or of its own config.json."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import models
from algorithms.config_json import from_config_json
from algorithms.model_specs import ModelSpec, model_spec
from flows.config import ModelConfig

CONFIG = "config.json"

Sizes = Mapping[str, ModelSpec]
"""Of models by the name that configurations have for them: what is said of them goes before what is known."""


def spec_of(model: ModelConfig, given: Sizes) -> ModelSpec:
    """The sizes, without fetching anything.

    Raises:
        ValueError: the name is not known, and no folder with a config.json is here; or its shape is not counted. The
            message says what to do.
    """
    if (spec := given.get(model.name)) is not None:
        return spec
    try:
        return model_spec(model.name)
    except ValueError as unknown:
        folder = models.present(model.name)
        if folder is None and model.tokenizer not in {None, *models.BUILT_IN}:  # a built-in one only lends its own
            folder = models.present(str(model.tokenizer))
        if folder is None:
            raise ValueError(
                f"{unknown}`whitney plan --model-config {model.name}=FILE` reads them from its {CONFIG}; "
                "a run's own plan does where model.tokenizer is a folder of the model"
            ) from None
    return _read(folder.config, str(folder.path / CONFIG), model.name)


def spec_in(path: Path, name: str) -> ModelSpec:
    """The sizes by a `config.json`, or by the one in a folder.

    Raises:
        ValueError: there is none, it is not JSON, or `from_config_json` refuses it; the message names the file.
    """
    file = path / CONFIG if path.is_dir() else path
    if file.exists() and not file.is_file():  # a pipe would be waited for
        raise ValueError(f"{file} is no file: name the model's {CONFIG}, or the folder that holds it")
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # not UTF-8, not JSON, nested without end
        raise ValueError(f"{file} is not JSON: {error}") from error
    if not isinstance(config, dict):
        raise ValueError(  # noqa: TRY004 - of the file it is a value
            f"{file} holds a {type(config).__name__}, and should hold the fields of a model"
        )
    return _read(config, str(file), name)


def _read(config: Mapping[str, object], where: str, name: str) -> ModelSpec:
    try:
        return from_config_json(config, name, where)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
