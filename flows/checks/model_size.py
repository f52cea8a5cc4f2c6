"""The sizes of the model that a configuration names: of the table of known ones, else of its own config.json."""

from __future__ import annotations

import models
from algorithms.model_specs import ModelSpec, from_config_json, model_spec
from flows.config import ModelConfig


def spec_of(model: ModelConfig) -> ModelSpec:
    """The sizes, without fetching anything.

    Raises:
        ValueError: the name is not known, and no folder with a config.json is here; or its shape is not counted.
    """
    try:
        return model_spec(model.name)
    except ValueError as unknown:
        folder = models.present(model.name) or (models.present(model.tokenizer) if model.tokenizer else None)
        if folder is None:
            raise ValueError(f"{unknown}; a folder of the model with its config.json does as model.tokenizer") from None
    return from_config_json(folder.config, model.name)
