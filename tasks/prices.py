"""What operations, tokens and GPU hours cost: the user's own price file. No price is shipped as true."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from algorithms.gpus import Gpu, gpu
from algorithms.names import did_you_mean
from whitney.types import RUN_KINDS, SAMPLER_KINDS

OPERATIONS = (*RUN_KINDS, *SAMPLER_KINDS)
TOKENS = ("prefill", "sampled", "trained")
TOKENS_A_PRICE = 1_000_000
"""Prices of tokens are per million."""

SECONDS_AN_HOUR = 3600

UTILIZATION = 0.4
"""The share of a GPU's peak that is taken to be had where nobody says better."""

Price = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""The bounds of a price file are far beyond any real one, and keep every product of them a number."""


class PriceError(ValueError):
    """The price file cannot be used; the message names the file, the field and its value."""


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class GpuPrice(_Table):
    """GPUs that are paid by the hour."""

    kind: str = Field(description="As `algorithms/gpus.toml` names it: h100.")
    count: Annotated[int, Field(ge=1, le=1_000_000)] = Field(1, description="GPUs at once.")
    per_hour: Price = Field(0.0, description="Of one GPU.")
    utilization: Annotated[float, Field(ge=1e-6, le=1)] = Field(
        UTILIZATION, description="The share of the GPU's peak that is really had (MFU)."
    )

    @field_validator("kind")
    @classmethod
    def _known(cls, kind: str) -> str:
        return gpu(kind).name

    @property
    def hardware(self) -> Gpu:
        """Its memory and speed."""
        return gpu(self.kind)


class Prices(_Table):
    """Prices in one currency; what is not named costs nothing."""

    currency: Annotated[str, Field(min_length=1, max_length=8)] = Field("USD", description="For people: USD, €.")
    operations: dict[Literal[OPERATIONS], Price] = Field(  # type: ignore[valid-type]
        default_factory=dict, description="Of one operation, by kind."
    )
    tokens: dict[Literal[TOKENS], Price] = Field(  # type: ignore[valid-type]
        default_factory=dict, description="Of a million tokens."
    )
    gpu: GpuPrice | None = Field(None, description="What time costs.")

    @property
    def empty(self) -> bool:
        """Whether no price is above 0, as in a file that nobody has filled in."""
        return not any((*self.operations.values(), *self.tokens.values(), self.per_second))

    @property
    def per_second(self) -> float:
        """Of all GPUs at once."""
        return self.gpu.count * self.gpu.per_hour / SECONDS_AN_HOUR if self.gpu else 0.0

    def cost(self, operations: Mapping[str, float], tokens: Mapping[str, float], seconds: float = 0) -> float:
        """What so much costs, in `currency`; arguments as `parts`."""
        return sum(self.parts(operations, tokens, seconds).values())

    def parts(
        self, operations: Mapping[str, float], tokens: Mapping[str, float], seconds: float = 0
    ) -> dict[str, float]:
        """The same by what it is for: "operations", "tokens", "gpu_time".

        Args:
            operations: how many of each kind, by the wire's names.
            tokens: "prefill", "sampled", "trained", as the ledger counts them.
            seconds: of all GPUs at once.
        """
        return {
            "operations": sum(self.operations.get(kind, 0.0) * count for kind, count in operations.items()),
            "tokens": sum(self.tokens.get(name, 0.0) * count for name, count in tokens.items()) / TOKENS_A_PRICE,
            "gpu_time": self.per_second * seconds,
        }


def read_prices(path: str | Path) -> Prices:
    """A price file, TOML; `whitney init prices` writes an example.

    Raises:
        PriceError: it cannot be read, or a field of it is unknown or wrong.
    """
    file = Path(path)
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise PriceError(f"the price file {str(path)!r}: no such file; `whitney init prices` writes one") from error
    except OSError as error:
        raise PriceError(f"the price file {str(path)!r} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise PriceError(f"the price file {str(path)!r} is no text in UTF-8: {error.reason}") from error
    except tomllib.TOMLDecodeError as error:
        raise PriceError(f"the price file {str(path)!r} is no TOML: {error}") from error
    try:
        return Prices.model_validate(table)
    except ValidationError as error:
        said = "\n".join(_explained(dict(one)) for one in error.errors(include_url=False))
        raise PriceError(f"the price file {str(path)!r}: {said}") from error


def prices_in(path: Path | None) -> Prices | None:
    """Those of a file that a configuration may name; None where it names none.

    Raises:
        PriceError: as `read_prices`.
    """
    return None if path is None else read_prices(path)


_KNOWN = {"operations": OPERATIONS, "tokens": TOKENS, "gpu": tuple(GpuPrice.model_fields)}


def _explained(mistake: dict[str, Any]) -> str:
    """A line: the field, its value, what may stand there."""
    path = [str(part) for part in mistake["loc"] if part != "[key]"]
    field = ".".join(path)
    if mistake["type"] in ("extra_forbidden", "literal_error"):
        known = _KNOWN.get(path[0], ()) if len(path) > 1 else tuple(Prices.model_fields)
        return f"unknown field {field!r}: {did_you_mean(path[-1], known)}known: {', '.join(known)}"
    if mistake["type"] == "missing":
        return f"{field} is missing"
    said = mistake["msg"].removeprefix("Value error, ")
    return f"{field} = {mistake['input']!r}: {said[0].lower()}{said[1:]}"
