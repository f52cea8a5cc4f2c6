"""Clients that are wrong on purpose: a campaign that passes them proves nothing. Only `--client` puts them in.

Both mishandle one thing, the answer to a post that never came.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast
from unittest.mock import patch

import httpx
import orjson

from whitney.client import WhitneyClient
from whitney.sequence import OperationHandle, RunSequence
from whitney.transport import Refusal


async def _post_once(client: WhitneyClient, handle: OperationHandle, seq_id: int) -> bool:
    """Post an operation, once; whether there was an answer."""
    body = {"seq_id": seq_id, "kind": handle.kind, "payload": orjson.Fragment(handle.encoded or b"")}
    if handle.sampler_id is None:
        request = client._endpoint.request("run_operation", body=body, run_id=handle.run_id)
    else:
        request = client._endpoint.request(
            "sampler_operation", body=body, run_id=handle.run_id, sampler_id=handle.sampler_id
        )
    attempts = client._endpoint.policy.start()
    while True:
        try:
            answer = client._endpoint.answer(request, await client._attempt(request))
        except httpx.RequestError:
            return False
        if not isinstance(answer, Refusal):
            return True
        await client._pause(answer, attempts)


def no_repost() -> None:
    """Takes a lost answer for a yes: goes on with the next seq_id, and never posts the operation again."""

    async def post_operation(client: WhitneyClient, handle: OperationHandle, seq_id: int) -> None:
        await _post_once(client, handle, seq_id)

    patch.object(WhitneyClient, "post_operation", post_operation).start()


def fresh_seq() -> None:
    """Takes a lost answer for a no: posts the operation again under the seq_id that the endpoint expects next."""

    async def post(sequence: RunSequence, handle: OperationHandle) -> int:
        client = cast("WhitneyClient", sequence._wire)
        seq_id = sequence._next
        while seq_id is None or not await _post_once(client, handle, seq_id):
            seq_id = await client.next_seq_id(handle.run_id)
        sequence._next = seq_id + 1
        return seq_id

    patch.object(RunSequence, "_post", post).start()


CLIENTS: dict[str, Callable[[], None]] = {"broken-no-repost": no_repost, "broken-fresh-seq": fresh_seq}
