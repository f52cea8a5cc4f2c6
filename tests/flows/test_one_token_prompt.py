"""The shortest prompt there is: nothing before it to shift from, nothing to pad with."""

from __future__ import annotations

import pytest

from algorithms import adamw_optimizer, forward_backward_payload, result_sampler_id, rl_datum, trained_logprobs
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun


@pytest.mark.usefixtures("endpoint")
async def test_a_prompt_of_one_token_is_sampled_and_trained_like_any_other() -> None:
    prompt = [5]
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.create_session(create_key="one token")
        request = CreateRun(create_key="one token", provider="local", model="tiny")
        run_id = (await client.create_run(session.session_id, request)).run_id
        sampler_id = result_sampler_id(await client.run_operation(run_id, "save_weights_for_sampler", {}))
        params = {"max_tokens": 5, "seed": 1}
        payload = {"prompt": {"token_ids": prompt}, "num_samples": 4, "sampling_params": params}
        sequences = (await client.sampler_operation(run_id, sampler_id, "sample", payload))["sequences"]
        data = [
            rl_datum(prompt, one["tokens"], one["logprobs"], advantage)
            for one, advantage in zip(sequences, (1.0, -1.0, 1.0, -1.0), strict=True)
        ]
        backward = await client.run_operation(
            run_id, "forward_backward", forward_backward_payload(data, "importance_sampling")
        )
        await client.run_operation(run_id, "optim_step", {"optimizer": adamw_optimizer(learning_rate=1e-3)})
        await client.finish(run_id)
        await client.wait_terminal(run_id)
        await client.close_session(session.session_id)
    sampled = [logprob for one in sequences for logprob in one["logprobs"]]
    assert trained_logprobs(data, backward["loss_outputs"]) == pytest.approx(sampled, abs=1e-3)
