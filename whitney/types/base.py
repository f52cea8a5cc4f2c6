"""The two temperaments of the wire: strict about what is asked, tolerant of what is answered."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, ConfigDict, FailFast, Field

_Item = TypeVar("_Item")

Long = Annotated[list[_Item], FailFast()]
"""A list that may hold a million items: refused at the first bad one, where an error each would fill the memory."""

INT64_MAX = 2**63 - 1
Int64 = Annotated[int, Field(ge=-INT64_MAX - 1, le=INT64_MAX)]
"""What a tensor of int64 and a column of the ledger can hold; JSON's integers know no end."""

Finite = Annotated[float, Field(allow_inf_nan=False)]
"""A float that is neither infinite nor NaN; JSON has no word for either, and a gradient has no use for one."""

TokenId = Annotated[int, Field(ge=0, le=INT64_MAX)]

CreateKey = Annotated[str, Field(min_length=1, max_length=200)]
"""Chosen by the caller; the same key names the same session or run, so a lost answer never allocates twice."""


class WireRequest(BaseModel):
    """What a caller sends. An unknown field is an error: a misspelt one would otherwise be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class WireAnswer(BaseModel):
    """What a gateway answers. Unknown fields are passed over, so that a newer gateway can say more."""

    model_config = ConfigDict(extra="ignore", frozen=True)
