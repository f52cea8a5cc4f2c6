"""Sampled completions in the wire's shape, and what a test reads off a datum."""

from types import SimpleNamespace

PROMPT = [1, 2]
REQUEST = {"prompt": {"token_ids": PROMPT}}


def sequence(*tokens, reward=None, logprob=-0.5, reference=None, stop_reason="stop"):
    sampled = {
        "tokens": list(tokens),
        "logprobs": [logprob] * len(tokens),
        "stop_reason": stop_reason,
        "reward": reward,
    }
    return sampled if reference is None else {**sampled, "reference_logprobs": reference}


def group(*sequences):
    """What a flow's group is to `build_batch`."""
    return SimpleNamespace(
        prompt_tokens=PROMPT, sequences=list(sequences), rewards=[one["reward"] for one in sequences]
    )


def on(provider):
    return SimpleNamespace(provider=provider)


def trained(datum, name="advantages"):
    """The values of a loss input at the completion's positions."""
    inputs = datum["loss_inputs"]
    return inputs[name]["values"][len(PROMPT) - 1 :]
