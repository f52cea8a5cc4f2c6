"""From bytes to the wire's types, with every refusal naming its field and never echoing what was sent."""

from __future__ import annotations

import functools
import hashlib
import math
import operator
from typing import Annotated, Any, Literal, TypeVar

import orjson
from pydantic import Field, TypeAdapter, ValidationError, create_model

from gateway.errors import GatewayError, invalid, shorten
from whitney.types import (
    PAYLOADS,
    RUN_KINDS,
    SAMPLER_KINDS,
    CapabilityRow,
    ForwardPayload,
    LogprobsPayload,
    OperationRequest,
    SamplePayload,
    WireRequest,
)

_Request = TypeVar("_Request", bound=WireRequest)

MAX_WAIT_S = 60.0
_DTYPES = ("int64", "float32")
_REPORTED_ERRORS = 5


class ParsedOperation(OperationRequest):
    """An operation request whose payload is already of its kind's type; one subclass a kind is made below."""

    payload: Any


def _by_kind(kinds: tuple[str, ...]) -> TypeAdapter[ParsedOperation]:
    # One discriminated union, so that the kind selects the payload's type within a single pass over the JSON.
    fields: dict[str, dict[str, Any]] = {
        kind: {"kind": (Literal[kind], ...), "payload": (PAYLOADS[kind], ...)} for kind in kinds
    }
    members = [create_model(f"{kind}_operation", __base__=ParsedOperation, **fields[kind]) for kind in kinds]
    union: Any = Annotated[functools.reduce(operator.or_, members), Field(discriminator="kind")]
    return TypeAdapter(union)


_RUN_OPERATION = _by_kind(RUN_KINDS)
_SAMPLER_OPERATION = _by_kind(SAMPLER_KINDS)


def parse(model: type[_Request], body: bytes) -> _Request:
    """A request body of one type.

    Raises:
        GatewayError: 400 not JSON; 422 with the field's path.
    """
    try:
        return model.model_validate_json(body, strict=True)
    except ValidationError as error:
        raise _refusal(error) from None


def parse_operation(body: bytes, *, sampler: bool) -> ParsedOperation:
    """The body of an operation route; `payload` is an instance of `PAYLOADS[kind]`.

    Raises:
        GatewayError: 400 not JSON; 422 with the field's path. Neither consumes the seq_id.
    """
    try:
        return (_SAMPLER_OPERATION if sampler else _RUN_OPERATION).validate_json(body, strict=True)
    except ValidationError as error:
        raise _refusal(error, skip_tag=True, sampler=sampler) from None


def digest(*parts: Any) -> str:
    """SHA-256 of the canonical JSON of `parts`: field order and omitted defaults make no difference."""
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()


def check_context(row: CapabilityRow, payload: WireRequest) -> None:
    """Refuse sequences the model has no room for, before they can fail a run.

    Raises:
        GatewayError: 422 with both lengths.
    """
    limit = row.max_sequence_tokens
    if isinstance(payload, SamplePayload):
        prompt, wanted = len(payload.prompt.token_ids), payload.sampling_params.max_tokens
        if prompt + wanted > limit:
            raise invalid(
                "payload.sampling_params.max_tokens",
                f"{wanted} do not fit behind a prompt of {prompt} tokens: {row.model} holds {limit}",
            )
        return
    lengths: dict[str, int] = {}
    if isinstance(payload, LogprobsPayload):
        lengths["payload.input.token_ids"] = len(payload.input.token_ids)
    if isinstance(payload, ForwardPayload):
        lengths = {f"payload.data.{i}.input.token_ids": len(d.input.token_ids) for i, d in enumerate(payload.data)}
    for path, length in lengths.items():
        if length > limit:
            raise invalid(path, f"{length} tokens are too many: {row.model} holds {limit}")


def parse_seq_id(text: str) -> int:
    """A seq_id from a path.

    Raises:
        GatewayError: 422 when it is not a whole number of a ledger's size.
    """
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise invalid("seq_id", f"{shorten(text)!r} is not a seq_id; they are 0, 1, 2, …")
    return int(text)


def parse_wait_s(text: str | None) -> float:
    """`?wait_s=`: seconds a long poll may last, at most 60.

    Raises:
        GatewayError: 422 when it is not a number from 0 to 60.
    """
    try:
        seconds = float(text or 0)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= MAX_WAIT_S:
        raise invalid("wait_s", f"{shorten(text)!r} is not a number of seconds from 0 to {MAX_WAIT_S:g}")
    return seconds


def parse_label_filters(texts: list[str]) -> dict[str, str]:
    """`?label=key:value`, any number of times; values may contain colons.

    Raises:
        GatewayError: 422 for a label without a colon.
    """
    labels = {}
    for text in texts:
        key, colon, value = text.partition(":")
        if not colon or not key:
            raise invalid("label", f"{shorten(text)!r} is not of the form key:value")
        labels[key] = value
    return labels


def _refusal(error: ValidationError, *, skip_tag: bool = False, sampler: bool = False) -> GatewayError:
    # Without input and context: pydantic's own text would quote the values that were sent.
    found = error.errors(include_url=False, include_context=False, include_input=False)
    if found[0]["type"] == "json_invalid":
        return GatewayError(400, "invalid_json", f"the body is not JSON: {found[0]['msg']}")
    problems = [
        {
            "path": _path(item["loc"], skip_tag=skip_tag),
            "message": _sentence(item["type"], item["msg"], sampler=sampler),
        }
        for item in found[:_REPORTED_ERRORS]
    ]
    if found[0]["type"].startswith("union_tag") and len(found[0]["loc"]) == 0:
        problems[0]["path"] = "kind"
    first = problems[0]
    return invalid(first["path"], first["message"], errors=problems, error_count=len(found))


def _path(loc: tuple[int | str, ...], *, skip_tag: bool) -> str:
    """The field's path as the caller wrote it: without the tags pydantic adds for the kind and for a tensor's dtype."""
    parts = list(loc[1:] if skip_tag else loc)
    if "loss_inputs" in parts:
        tag = parts.index("loss_inputs") + 2
        if len(parts) > tag and parts[tag] in _DTYPES:
            del parts[tag]
    return ".".join(shorten(part, 60) for part in parts)


def _sentence(error_type: str, message: str, *, sampler: bool) -> str:
    if error_type == "union_tag_invalid" and "'kind'" in message:
        mine, other = (SAMPLER_KINDS, RUN_KINDS) if sampler else (RUN_KINDS, SAMPLER_KINDS)
        here, there = ("a sampler's", "a run's") if sampler else ("a run's", "a sampler's")
        return f"not an operation of {here} route; known here: {', '.join(mine)}; on {there} route: {', '.join(other)}"
    if error_type.startswith("union_tag"):
        return f"dtype must be one of {', '.join(_DTYPES)}"
    return message.removeprefix("Value error, ")
