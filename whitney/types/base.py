"""The two temperaments of the wire: strict about what is asked, tolerant of what is answered."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is neither infinite nor NaN; JSON has no word for either, and a gradient has no use for one."""

TokenId = Annotated[int, Field(ge=0)]

CreateKey = Annotated[str, Field(min_length=1, max_length=200)]
"""Chosen by the caller; the same key names the same session or run, so a lost answer never allocates twice."""


class WireRequest(BaseModel):
    """What a caller sends. An unknown field is an error: a misspelt one would otherwise be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WireAnswer(BaseModel):
    """What a gateway answers. Unknown fields are passed over, so that a newer gateway can say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)
