"""Does a key of `loss_config` reach the loss? Told by gradients, for the result of a request says nothing of it."""

from __future__ import annotations

from typing import Any

from cli.smoke_checks import EFFECT, KEY_PROBES, NOISE

PROMPT = [5, 9, 14, 20]
COMPLETIONS = [3, 8, 12], [4, 6, 10]
PROBES: dict[str, dict[str, tuple[float, float]]] = {**KEY_PROBES, "ppo_critic": {"value_clip": (0.2, 10.0)}}
"""By loss and key, two values with different gradients for the datums below."""
KEYS = [(loss, key) for loss, keys in PROBES.items() for key in keys]


def require_key_reaches_loss(whitney: Any, loss: str, key: str) -> None:
    """Two requests that differ in one key alone have different gradients, and the same request twice has the same.

    Raises:
        AssertionError: they do not.
    """
    session_id = whitney.open_session()
    data = _critic_data() if loss == "ppo_critic" else _policy_data(whitney, session_id)
    base = {name: one for name, (one, _) in PROBES[loss].items()}
    other = base | {key: PROBES[loss][key][1]}
    first, again, changed = (_norm(whitney, session_id, data, loss, config) for config in (base, base, other))
    assert abs(first - again) <= NOISE * first, f"the same {loss} twice: gradient norms {first} and {again}"
    assert abs(first - changed) > EFFECT * max(first, changed), (
        f"{loss} with {key} {base[key]} and {other[key]}: gradient norms {first} and {changed}"
    )


def request(data: list[dict[str, Any]], loss: str, config: dict[str, float]) -> dict[str, Any]:
    return {"data": data, "loss_function": loss, "loss_config": config}


def datums(loss: str) -> list[dict[str, Any]]:
    """Datums that carry what `loss` needs."""
    return _critic_data() if loss == "ppo_critic" else _rl_data([[-1.0] * 3] * 2)


def role_of(loss: str) -> str:
    return "critic" if loss == "ppo_critic" else "policy"


def _norm(whitney: Any, session_id: str, data: Any, loss: str, config: dict[str, float]) -> float:
    """The gradient's norm on a fresh run: all are equal, for they have one seed."""
    run_id = whitney.open_run(session_id, role=role_of(loss))
    whitney.do(run_id, 0, "forward_backward", request(data, loss, config))
    metrics = whitney.do(run_id, 1, "optim_step", {"optimizer": {"learning_rate": 1e-3}})["metrics"]
    norm: float = metrics["grad_norm"]
    return norm


def _policy_data(whitney: Any, session_id: str) -> list[dict[str, Any]]:
    """A datum that became likelier than when it was drawn, with advantage 1, and one that became less so, with −1."""
    run_id = whitney.open_run(session_id)
    plain = [_datum(tokens) for tokens in COMPLETIONS]
    outputs = whitney.do(run_id, 0, "forward", request(plain, "cross_entropy", {}))["loss_outputs"]
    now = [output["logprobs"]["values"][-3:] for output in outputs]
    return _rl_data([[value + shift for value in row] for row, shift in zip(now, (-0.5, 0.5), strict=True)])


def _rl_data(sampled: list[list[float]]) -> list[dict[str, Any]]:
    rows = zip(COMPLETIONS, sampled, (1.0, -1.0), strict=True)
    return [_datum(tokens, logprobs=drawn, advantages=[advantage] * 3) for tokens, drawn, advantage in rows]


def _critic_data() -> list[dict[str, Any]]:
    # A new critic says 0. It has moved there from 1, beyond the return: held at 0.8 the loss has no gradient.
    return [_datum(tokens, values=[1.0] * 3, returns=[-1.0] * 3) for tokens in COMPLETIONS]


def _datum(completion: list[int], **per_token: list[float]) -> dict[str, Any]:
    full = PROMPT + completion
    pad = [0.0] * (len(PROMPT) - 1)
    floats = {"weights": [1.0] * len(completion)} | per_token
    inputs: dict[str, Any] = {"target_tokens": {"dtype": "int64", "shape": [len(full) - 1], "values": full[1:]}}
    for name, values in floats.items():
        inputs[name] = {"dtype": "float32", "shape": [len(full) - 1], "values": pad + values}
    return {"input": {"token_ids": full[:-1]}, "loss_inputs": inputs}
