"""`forward` and `forward_backward` of a critic: datums in, metrics and values out, gradients to the run's vector.

The critic is the run's LoRA network with a linear head on the normed hidden state. The value at input position t is
that of the state before target t: it has read the tokens up to t, and not what came of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own convention
from torch import Tensor

from gateway.providers.local.errors import EngineError
from gateway.providers.local.examples import Example
from gateway.providers.local.forward import final_norm, hidden_states, trained_hidden_states
from gateway.providers.local.lora import LoraTensors
from gateway.providers.local.losses import LossGradient, TrainedValues, evaluate_critic
from gateway.providers.local.packing import Pack
from gateway.providers.local.training import TrainingRequest, packs_of, scatter


def run_critic(request: TrainingRequest, gradient: LoraTensors | None) -> dict[str, Any]:
    """Evaluate a ppo_critic request; with `gradient`, add the loss's gradient to it (zeros at the start).

    Raises:
        EngineError: bad input (see `examples`); `non_finite` when the loss or the gradient is not a number.
    """
    examples = request.examples()
    tally, scale = _Tally(), request.scale(examples)
    values = [torch.zeros(len(example.positions)) for example in examples]
    for pack, members in packs_of(request, examples):
        batch = [examples[number] for number in members]
        nodes = torch.cat([pack.paths[number][examples[number].positions] for number in members])
        current = _values(request, pack, nodes, gradient)
        tokens = _trained_values(current.detach(), batch)
        result = evaluate_critic(tokens, request.payload["loss_config"])
        if not result.is_finite:
            raise EngineError("non_finite", "ppo_critic is not finite: values and returns are too far apart")
        if gradient is not None:
            current.backward((result.gradient * scale).float())
        for number, part in zip(members, current.detach().split([len(one.positions) for one in batch]), strict=True):
            values[number] = part
        tally.add(result, tokens, scale)
    if gradient is not None and not bool(torch.isfinite(gradient.flat).all()):
        raise EngineError("non_finite", "the gradient of ppo_critic is not finite")
    outputs = [{"values": scatter(example, part[:, None])} for example, part in zip(examples, values, strict=True)]
    return {"metrics": tally.metrics(), "loss_outputs": outputs}


def _values(request: TrainingRequest, pack: Pack, nodes: Tensor, gradient: LoraTensors | None) -> Tensor:
    """V at the pack's `nodes`, [n]; with `gradient`, backward adds the gradients of LoRA and head to it."""
    network, lora = request.network, request.lora
    if gradient is None:
        states = final_norm(network.base, hidden_states(network, pack)[nodes])
        return F.linear(states, lora.value_weight, lora.value_bias)[:, 0]
    stream = trained_hidden_states(network, pack, lora, gradient)
    states = final_norm(network.base, stream.index_select(0, nodes))
    return _head(lora, gradient, states)


def _head(lora: LoraTensors, gradient: LoraTensors, states: Tensor) -> Tensor:
    # Leaves of their own whose gradients go where the run gathers them: the flat vector itself is never in a graph.
    weight, bias = (part.detach().requires_grad_(True) for part in (lora.value_weight, lora.value_bias))
    weight.register_hook(gradient.value_weight.add_)
    bias.register_hook(gradient.value_bias.add_)
    return F.linear(states, weight, bias)[:, 0]


def _trained_values(current: Tensor, batch: list[Example]) -> TrainedValues:
    def gather(name: str) -> Tensor:
        return torch.cat([example.inputs[name] for example in batch])

    weights = torch.cat([example.weights[:, 0] for example in batch])
    return TrainedValues(current.double(), weights, gather("values"), gather("returns"))


@dataclass
class _Tally:
    """What the packs add up to, turned into metrics at the end."""

    loss: float = 0.0
    clipped: float = 0.0
    values: list[Tensor] = field(default_factory=list)
    returns: list[Tensor] = field(default_factory=list)

    def add(self, result: LossGradient, tokens: TrainedValues, scale: float) -> None:
        assert result.clipped is not None, "the critic's loss says where it clips"
        self.loss += float(result.loss.sum()) * scale
        self.clipped += float(result.clipped.sum())
        self.values.append(tokens.values)
        self.returns.append(tokens.returns)

    def metrics(self) -> dict[str, float]:
        """`loss` is the request's total; the others are over its trained tokens, unweighted.

        explained_variance = 1 − Var(R − V) / Var(R): 1 for a perfect critic, 0 for one that says the same everywhere,
        and 0 where all returns are equal, which leaves nothing to explain.
        """
        nothing = torch.zeros(0, dtype=torch.float64)
        values, returns = torch.cat([nothing, *self.values]), torch.cat([nothing, *self.returns])
        count = max(1, len(values))
        spread = _variance(returns)
        return {
            "loss": self.loss,
            "tokens": float(len(values)),
            "value_mean": float(values.sum()) / count,
            "explained_variance": 1 - _variance(returns - values) / spread if spread > 0 else 0.0,
            "clip_fraction": self.clipped / count,
        }


def _variance(numbers: Tensor) -> float:
    """The population's; 0 for none."""
    return float(numbers.var(correction=0)) if len(numbers) else 0.0
