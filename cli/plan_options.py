"""What a plan is reckoned by, beside the configuration: the options of `whitney plan` that say it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from cli.failures import UsageError
from cli.served_for import models_named

if TYPE_CHECKING:
    from collections.abc import Sequence

    from algorithms.model_specs import ModelSpec
    from flows.load_config import AnyConfig

OPTION = "--model-config"


@dataclass(frozen=True, slots=True)
class Reckoning:
    """What the reader says of money, of time, of completions and of models.

    Parameters
    ----------
    prices
        Your price file; `whitney init prices` writes one to fill in. Default: the configuration's budget.prices.
    gpu
        Reckon time on this GPU, h100 for one; default: the price file's. An hour of another GPU than the price file's
        has no price.
    completion_tokens
        Tokens of a typical sampled completion; default: the mean of the newest run in output_dir with the same
        algorithm, model, data and sampling.max_tokens, else half of sampling.max_tokens.
    model_config
        Hugging Face config.json of the model, or a folder that holds it: for FLOPs and memory of a model whose sizes
        are not known. Where a plan has several models, NAME=FILE; may be repeated.
    """

    prices: Path | None = None
    gpu: str | None = None
    completion_tokens: float | None = None
    model_config: Annotated[tuple[str, ...], Parameter(name=OPTION, negative="")] = ()

    def sizes(self, configs: Sequence[AnyConfig]) -> dict[str, ModelSpec]:
        """The sizes that are given, by the model's name.

        Raises:
            UsageError: a file cannot be used; a name that no configuration has, or none where there are several.
        """
        from flows.plan.model_size import spec_in

        names = list(dict.fromkeys(name for config in configs for name in models_named(config)))
        found = {}
        for value in self.model_config:
            name, file = _named(value, names)
            try:
                found[name] = spec_in(Path(file), name)
            except ValueError as error:
                raise UsageError(f"{OPTION} {error}") from error
        return found


NOTHING_SAID = Reckoning()


def _named(value: str, names: Sequence[str]) -> tuple[str, str]:
    """Name and file of NAME=FILE, or of a FILE where there is one model."""
    name, equals, file = value.partition("=")
    if equals and name in names:
        return name, file
    if Path(value).exists() or not equals:
        if len(names) == 1:
            return names[0], value
        raise UsageError(f"{OPTION} {value}: of which model? Write NAME={value}, NAME being one of {', '.join(names)}")
    raise UsageError(f"{OPTION} {value}: no model is called {name!r} here; there is {', '.join(names)}")
