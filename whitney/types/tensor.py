"""Tensor and datum: what a training operation is fed with."""

from __future__ import annotations

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from whitney.types.base import INT64_MAX, Finite, Int64, Long, TokenId, WireRequest


class _Dense(WireRequest):
    shape: list[Annotated[int, Field(ge=0, le=INT64_MAX)]] = Field(min_length=1, max_length=2)

    def _check_shape(self, count: int) -> None:
        if math.prod(self.shape) != count:
            raise ValueError(f"shape {self.shape} asks for {math.prod(self.shape)} values, {count} were sent")


class IntTensor(_Dense):
    """`{"dtype": "int64", "shape": [T] | [N, K], "values": flat, row-major}`."""

    dtype: Literal["int64"]
    values: Long[Int64]

    @model_validator(mode="after")
    def _values_fill_the_shape(self) -> Self:
        self._check_shape(len(self.values))
        return self


class FloatTensor(_Dense):
    """`{"dtype": "float32", "shape": [T] | [N, K], "values": flat, row-major, finite}`."""

    dtype: Literal["float32"]
    values: Long[Finite]

    @model_validator(mode="after")
    def _values_fill_the_shape(self) -> Self:
        self._check_shape(len(self.values))
        return self


Tensor = Annotated[IntTensor | FloatTensor, Field(discriminator="dtype")]


class TokenInput(WireRequest):
    """Token ids of one sequence; text never crosses the wire."""

    token_ids: Long[TokenId] = Field(min_length=1)


class Datum(WireRequest):
    """One right-shifted example: `input` of T tokens, every loss input of length T, zeros on prompt positions."""

    input: TokenInput
    loss_inputs: dict[str, Tensor]

    @model_validator(mode="after")
    def _every_loss_input_has_the_inputs_length(self) -> Self:
        length = len(self.input.token_ids)
        for name, tensor in self.loss_inputs.items():
            if tensor.shape[0] != length:
                raise ValueError(f"loss_inputs.{name} has {tensor.shape[0]} rows, input.token_ids has {length}")
        return self
