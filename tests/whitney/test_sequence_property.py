"""Whatever the line does to whichever operations, in whatever batches: order, exactly once, and an answer for each."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from scripted_endpoint import RUN, ScriptedEndpoint

from whitney.errors import InvalidRequestError, OperationNotSentError

FAULTS = st.lists(
    st.sampled_from(["ok", "lost", "reset", "garbled", (503, {}), (429, {"retry-after": "1"}), (500, {})]),
    max_size=12,  # fewer than the deadline has room for
)
# Batches of operations, submitted at once and awaited together; True is one that the endpoint refuses.
BATCHES = st.lists(st.lists(st.booleans(), min_size=1, max_size=6), min_size=1, max_size=5)


async def play(faults: list[Any], batches: list[list[bool]]) -> None:
    endpoint = ScriptedEndpoint(faults)
    number, sent, outcomes = 0, [], []
    async with endpoint.client() as client:
        for batch in batches:
            handles = []
            for refuse in batch:
                handles.append(client.submit_run_operation(RUN, "forward", {"n": number, "refuse": refuse}))
                if not any(batch[: len(handles)]):
                    sent.append(number)
                number += 1
            outcomes.append(await asyncio.gather(*handles, return_exceptions=True))
    assert endpoint.numbers == sent
    assert endpoint.most_posts_at_once == 1
    for batch, results in zip(batches, outcomes, strict=True):
        accepted = batch.index(True) if True in batch else len(batch)
        assert all(isinstance(result, dict) for result in results[:accepted])
        assert all(isinstance(result, InvalidRequestError) for result in results[accepted : accepted + 1])
        assert all(isinstance(result, OperationNotSentError) for result in results[accepted + 1 :])
    answered = [result["echo"]["n"] for results in outcomes for result in results if isinstance(result, dict)]
    assert answered == sent


@settings(deadline=None, max_examples=150)
@given(faults=FAULTS, batches=BATCHES)
def test_every_accepted_operation_is_executed_once_in_order_and_answered(
    faults: list[Any], batches: list[list[bool]]
) -> None:
    asyncio.run(play(faults, batches))
