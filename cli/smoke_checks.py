"""What `whitney smoke` proves, each on a fresh run of its own. Token ids are arbitrary: no tokenizer is needed.

Providers have dropped a `loss_config` without a word. So the clip is proven by what training does: of two requests that
differ in their bounds alone, one must leave the weights untouched and the other must not. And for each loss and each of
its keys, two requests that differ in that key alone must have different gradients.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from algorithms import (
    MODAL_LOSS_CONFIG_KEYS,
    Datum,
    adamw_optimizer,
    forward_backward_payload,
    result_sampler_id,
    rl_datum,
    sft_datum,
    trained_logprobs,
)
from whitney.client import WhitneyClient

PROMPT = [5, 9, 14, 20, 11, 7]
SAMPLED_TOKENS = 8
LOGPROB_TOLERANCE = 1e-3
SAME, DIFFERENT = 1e-5, 1e-3
NARROW, WIDE = (0.8, 1.2), (0.1, 100.0)
"""Bounds of the ratio. The datums' ratio is e ≈ 2.72 with a positive advantage: beyond NARROW, where ppo's gradient is
zero, and inside WIDE, where it is not."""
KEY_PROBES: dict[str, dict[str, tuple[float, float]]] = {
    "ppo": {"clip_low_threshold": (0.8, 0.1), "clip_high_threshold": (1.2, 10.0)},
    "cispo": {"clip_low_threshold": (0.0, 3.0), "clip_high_threshold": (4.0, 1.2)},
    "gspo": {"clip_low_threshold": (0.8, 0.1), "clip_high_threshold": (1.2, 10.0)},
    "dppo": {"delta_low": (1.0, 0.0), "delta_high": (1.0, 0.0)},
    "dro": {"beta": (0.05, 1.0)},
    "sapo": {"tau_pos": (1.0, 10.0), "tau_neg": (1.05, 10.0)},
}
"""By loss and key, two values with different gradients for datums whose ratios are e^±½, as `_either_side` makes them.
(A policy's value_clip has no effect, and ppo_critic is a critic run's: neither can be proven on a policy run.)"""
NOISE, EFFECT = 1e-3, 1e-2
"""How far gradient norms of the same request may lie apart, and how far those of different ones must; relative."""


class CheckFailedError(Exception):
    """The endpoint does something else than we think; the message says what was seen."""


@dataclass(frozen=True, slots=True)
class Probe:
    """A fresh run, and the few operations that checks need."""

    client: WhitneyClient
    run_id: str

    async def operation(self, kind: str, payload: dict[str, Any]) -> dict[str, Any]:
        """An operation on the run; its result."""
        return await self.client.run_operation(self.run_id, kind, payload)

    async def sampler(self) -> str:
        """A snapshot of the run's current weights."""
        return result_sampler_id(await self.operation("save_weights_for_sampler", {}))

    async def sample(self, sampler_id: str, **params: Any) -> dict[str, Any]:
        """One completion of PROMPT."""
        sampling = {"max_tokens": SAMPLED_TOKENS, "temperature": 1.0, "seed": 7} | params
        payload = {"prompt": {"token_ids": PROMPT}, "num_samples": 1, "sampling_params": sampling}
        result = await self.client.sampler_operation(self.run_id, sampler_id, "sample", payload)
        sequence: dict[str, Any] = result["sequences"][0]
        return sequence

    async def logprobs(self, data: list[Datum]) -> list[float]:
        """The trainer's log-probs of the datums' trained tokens, by a `forward`."""
        plain = [{"input": d["input"], "loss_inputs": _cross_entropy_inputs(d)} for d in data]
        result = await self.operation("forward", forward_backward_payload(plain, "cross_entropy"))
        return trained_logprobs(plain, result["loss_outputs"])

    async def loss(self, data: list[Datum]) -> float:
        """cross_entropy of the datums, as the endpoint adds it up."""
        result = await self.operation("forward", forward_backward_payload(data, "cross_entropy"))
        if "loss" not in result["metrics"]:
            raise CheckFailedError(f"forward reports no `loss`; its metrics: {', '.join(sorted(result['metrics']))}")
        return float(result["metrics"]["loss"])


async def logprob_slice(probe: Probe) -> str:
    """The last n entries of `logprobs` are what `sample` returned with its n tokens."""
    sampler_id = await probe.sampler()
    drawn = await probe.sample(sampler_id)
    payload = {"input": {"token_ids": PROMPT + drawn["tokens"]}, "topk": 0}
    result = await probe.client.sampler_operation(probe.run_id, sampler_id, "logprobs", payload)
    forced = result["logprobs"][-len(drawn["tokens"]) :]
    worst = max(abs(one - other) for one, other in zip(forced, drawn["logprobs"], strict=True))
    return _require(worst <= LOGPROB_TOLERANCE, f"{len(forced)} tokens, largest difference {worst:.1e}")


async def plain_sum(probe: Probe) -> str:
    """cross_entropy of two datums is the sum of their losses, and each is −Σ log-prob."""
    one, other = sft_datum(PROMPT, [3, 8]), sft_datum(PROMPT, [12, 4, 6, 10])
    separate = [await probe.loss([one]), await probe.loss([other])]
    together = await probe.loss([one, other])
    by_hand = -math.fsum(await probe.logprobs([one, other]))
    agrees = math.isclose(together, sum(separate), rel_tol=1e-3) and math.isclose(together, by_hand, rel_tol=1e-3)
    seen = f"{separate[0]:.4f} and {separate[1]:.4f} together are {together:.4f}; −Σ log-prob {by_hand:.4f}"
    return _require(agrees, seen)


async def stop_token(probe: Probe) -> str:
    """A stop token is part of `tokens` and has a log-prob."""
    sampler_id = await probe.sampler()
    free = await probe.sample(sampler_id, temperature=0.0)
    stop = free["tokens"][len(free["tokens"]) // 2]
    until = free["tokens"].index(stop) + 1
    stopped = await probe.sample(sampler_id, temperature=0.0, stop_token_ids=[stop])
    agrees = (
        stopped["stop_reason"] == "stop"
        and stopped["tokens"] == free["tokens"][:until]
        and len(stopped["logprobs"]) == until
    )
    seen = f"stopped by {stopped['stop_reason']}: {len(stopped['tokens'])} tokens, {len(stopped['logprobs'])} log-probs"
    return _require(agrees, f"{seen}; expected {until} with the stop token last")


async def clip_in_loss_config(probe: Probe) -> str:
    """ppo's bounds in `loss_config` are taken."""
    return await _clip_matters(probe, in_config=True)


async def clip_in_tensors(probe: Probe) -> str:
    """ppo's bounds as per-token tensors on the datum are taken."""
    return await _clip_matters(probe, in_config=False)


async def _clip_matters(probe: Probe, *, in_config: bool) -> str:
    drawn = await probe.sample(await probe.sampler())
    before_q = [logprob - 1.0 for logprob in drawn["logprobs"]]

    async def step(bounds: tuple[float, float]) -> float:
        """Train once with these bounds; the largest change of a log-prob."""
        low, high = bounds
        tensors = {} if in_config else {"clip_low": low, "clip_high": high}
        config = {"clip_low_threshold": low, "clip_high_threshold": high} if in_config else None
        data = [rl_datum(PROMPT, drawn["tokens"], before_q, 1.0, **tensors)]
        before = await probe.logprobs(data)
        await probe.operation("forward_backward", forward_backward_payload(data, "ppo", config))
        await probe.operation("optim_step", {"optimizer": adamw_optimizer(learning_rate=1e-2)})
        return max(abs(a - b) for a, b in zip(await probe.logprobs(data), before, strict=True))

    clipped, free = await step(NARROW), await step(WIDE)
    seen = f"log-probs move by {clipped:.1e} within {NARROW}, by {free:.1e} within {WIDE}"
    return _require(clipped <= SAME and free >= DIFFERENT, seen)


def _loss_config_of(loss: str) -> Check:
    """The check that every key of one loss is taken."""

    async def check(probe: Probe) -> str:
        data = await _either_side(probe)
        base = {key: one for key, (one, _) in KEY_PROBES[loss].items()}

        async def norm(config: dict[str, float]) -> float:
            """The gradient's norm; a step of rate 0 reads it and leaves the weights as they are."""
            await probe.operation("forward_backward", forward_backward_payload(data, loss, config))
            result = await probe.operation("optim_step", {"optimizer": adamw_optimizer(learning_rate=0.0)})
            if "grad_norm" not in result["metrics"]:
                raise CheckFailedError("optim_step reports no `grad_norm`: whether a key is taken cannot be seen")
            return float(result["metrics"]["grad_norm"])

        first = await norm(base)
        others = {key: await norm(base | {key: other}) for key, (_, other) in KEY_PROBES[loss].items()}
        again = await norm(base)
        seen = ", ".join(f"by {key} {value:.4g}" for key, value in others.items())
        agrees = math.isclose(first, again, rel_tol=NOISE) and not any(
            math.isclose(first, value, rel_tol=EFFECT) for value in others.values()
        )
        return _require(agrees, f"gradient norm {first:.4g}, again {again:.4g}; {seen}")

    return check


async def _either_side(probe: Probe) -> list[Datum]:
    """One datum that became likelier than when it was drawn, with advantage 1, and one that became less so, with −1."""
    data = []
    for tokens, shift, advantage in (([3, 8, 12], -0.5, 1.0), ([4, 6, 10], 0.5, -1.0)):
        now = await probe.logprobs([sft_datum(PROMPT, tokens)])
        data.append(rl_datum(PROMPT, tokens, [logprob + shift for logprob in now], advantage))
    return data


def _cross_entropy_inputs(datum: Datum) -> dict[str, Any]:
    return {name: datum["loss_inputs"][name] for name in ("target_tokens", "weights")}


def _require(agrees: bool, seen: str) -> str:
    if not agrees:
        raise CheckFailedError(seen)
    return seen


Check = Callable[[Probe], Awaitable[str]]

CHECKS: dict[str, Check] = {
    "log-prob slice": logprob_slice,
    "cross_entropy is a plain sum": plain_sum,
    "stop token is in tokens": stop_token,
    "clip in loss_config": clip_in_loss_config,
    "clip in tensors": clip_in_tensors,
    **{f"loss_config of {loss}": _loss_config_of(loss) for loss in KEY_PROBES},
}
NOT_TAKEN = {
    "modal": {
        "clip in tensors",
        *(f"loss_config of {loss}" for loss in KEY_PROBES if loss not in MODAL_LOSS_CONFIG_KEYS),
    },
    "tinker": {"clip in loss_config", *(f"loss_config of {loss}" for loss in KEY_PROBES)},
}
"""What a provider refuses by contract: proving it would only prove the refusal."""
