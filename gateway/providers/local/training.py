"""`forward` and `forward_backward` of a policy: datums in, metrics and log-probs out, gradients to the run's vector."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from gateway.providers.local.errors import EngineError
from gateway.providers.local.examples import Example, read_examples
from gateway.providers.local.forward import Network, final_norm, hidden_states, trained_hidden_states
from gateway.providers.local.head import TokenLogprobs, token_logprobs
from gateway.providers.local.lora import LoraTensors
from gateway.providers.local.losses import LossFunction, LossGradient, TrainedTokens, evaluate
from gateway.providers.local.packing import Pack, pack_sequences


@dataclass(frozen=True)
class TrainingRequest:
    """One `forward` or `forward_backward` payload with what it is computed on."""

    network: Network
    lora: LoraTensors
    payload: Mapping[str, Any]
    reduction: str
    max_tokens: int

    def examples(self) -> list[Example]:
        """The payload's datums. Raises EngineError as `read_examples` does."""
        shapes = self.network.base.shapes
        return read_examples(self.payload, shapes.vocabulary, shapes.context_tokens)

    def scale(self, examples: list[Example]) -> float:
        """What the sum over trained tokens is multiplied by: 1, or one over their number for a backend of means."""
        if self.reduction == "sum":
            return 1.0
        return 1.0 / max(1, sum(len(example.positions) for example in examples))


def run_training(request: TrainingRequest, function: LossFunction, gradient: LoraTensors | None) -> dict[str, Any]:
    """Evaluate a request by `function`; with `gradient`, add the loss's gradient to it (zeros at the start).

    Raises:
        EngineError: bad input (see `examples`, `losses`); `non_finite` when the loss or the gradient is not a number.
    """
    loss, examples = request.payload["loss_function"], request.examples()
    tally, scale = _Tally(), request.scale(examples)
    logprobs = [torch.zeros(len(example.positions), example.targets.shape[1]) for example in examples]
    for pack, members in packs_of(request, examples):
        batch = _Batch.of(pack, [(number, examples[number]) for number in members])
        current, entropies = _logprobs(request, pack, batch, gradient)
        tokens = batch.trained_tokens(current.detach())
        result = evaluate(function, tokens, request.payload["loss_config"])
        if not result.is_finite:
            raise EngineError(
                "non_finite", f"{loss} is not finite: the policy has moved too far from the sampler's log-probs"
            )
        if gradient is not None:
            current.backward((result.gradient * scale).float())
        for number, values in batch.by_example(current.detach()):
            logprobs[number] = values
        tally.add(result, tokens, batch.entropies(entropies), policy_loss=loss != "cross_entropy", scale=scale)
    if gradient is not None and not bool(torch.isfinite(gradient.flat).all()):
        raise EngineError("non_finite", f"the gradient of {loss} is not finite")
    return {
        "metrics": tally.metrics(),
        "loss_outputs": [
            {"logprobs": scatter(example, values)} for example, values in zip(examples, logprobs, strict=True)
        ],
    }


def packs_of(request: TrainingRequest, examples: list[Example]) -> list[tuple[Pack, list[int]]]:
    """Packs with the numbers of the examples in them; examples without a trained position are in none."""
    trained = [number for number, example in enumerate(examples) if len(example.positions)]
    packs = pack_sequences(
        [examples[number].tokens for number in trained],
        max_tokens=request.max_tokens,
        break_even=request.network.attention_break_even(),
    )
    by_number = []
    for pack in packs:
        renumbered = Pack(
            pack.tokens,
            pack.positions,
            pack.lengths,
            pack.masks,
            {trained[place]: path for place, path in pack.paths.items()},
        )
        by_number.append((renumbered, sorted(renumbered.paths)))
    return by_number


def _logprobs(
    request: TrainingRequest, pack: Pack, batch: _Batch, gradient: LoraTensors | None
) -> tuple[Tensor, Tensor]:
    """Log-probs of the batch's (position, target) pairs, and entropies of its head positions."""
    base = request.network.base
    if gradient is None:
        stream = hidden_states(request.network, pack)
        states = final_norm(base, stream[batch.nodes])
        return token_logprobs(states, base.head, batch.rows, batch.targets)
    stream = trained_hidden_states(request.network, pack, request.lora, gradient)
    states = final_norm(base, stream.index_select(0, batch.nodes))
    logprobs, entropies = TokenLogprobs.apply(states, base.head, batch.rows, batch.targets)
    return logprobs, entropies


@dataclass(frozen=True)
class _Batch:
    """The trained tokens of one pack as (position, target) pairs, sorted by the head position they are read at.

    `nodes` [U] are the distinct pack nodes that need the head; `rows` [n] index into them. `order` is the sorting:
    pair i of the sorted arrays is pair order[i] of the examples' own order.
    """

    nodes: Tensor
    rows: Tensor
    targets: Tensor
    order: Tensor
    members: list[tuple[int, Example]]

    @classmethod
    def of(cls, pack: Pack, members: list[tuple[int, Example]]) -> _Batch:
        nodes = torch.cat(
            [
                pack.paths[number][example.positions].repeat_interleave(example.targets.shape[1])
                for number, example in members
            ]
        )
        order = torch.argsort(nodes, stable=True)
        distinct, rows = torch.unique_consecutive(nodes[order], return_inverse=True)
        targets = torch.cat([example.targets.flatten() for _, example in members])
        return cls(distinct, rows, targets[order], order, members)

    def trained_tokens(self, logprobs: Tensor) -> TrainedTokens:
        def gather(name: str) -> Tensor | None:
            found = [example.inputs[name] for _, example in self.members if name in example.inputs]
            return torch.cat(found)[self.order] if found else None

        nothing = torch.zeros(0, dtype=torch.float64)
        sampler, advantages = gather("logprobs"), gather("advantages")
        sequence = [torch.full((example.targets.numel(),), place) for place, (_, example) in enumerate(self.members)]
        return TrainedTokens(
            logprobs=logprobs.double(),
            weights=torch.cat([example.weights.flatten() for _, example in self.members])[self.order],
            sequence=torch.cat(sequence)[self.order],
            sampler_logprobs=nothing if sampler is None else sampler,
            advantages=nothing if advantages is None else advantages,
            clip_low=gather("clip_low_threshold"),
            clip_high=gather("clip_high_threshold"),
        )

    def by_example(self, logprobs: Tensor) -> list[tuple[int, Tensor]]:
        """The log-probs in the examples' own order, [n, K] for each."""
        own = torch.empty_like(logprobs)
        own[self.order] = logprobs
        parts = own.split([example.targets.numel() for _, example in self.members])
        return [
            (number, part.view(example.targets.shape))
            for (number, example), part in zip(self.members, parts, strict=True)
        ]

    def entropies(self, by_node: Tensor) -> Tensor:
        """One entropy a trained position: soft targets of a position count once, shared nodes once a sequence."""
        first_pair = [
            torch.arange(example.targets.numel()) % example.targets.shape[1] == 0 for _, example in self.members
        ]
        return by_node[self.rows][torch.cat(first_pair)[self.order]].double()


@dataclass
class _Tally:
    """Sums over packs, turned into metrics at the end."""

    loss: float = 0.0
    tokens: int = 0
    pairs: int = 0
    entropy: float = 0.0
    ratio: float = 0.0
    ratio_max: float = 0.0
    clipped: float | None = None
    k1: float = 0.0
    k3: float = 0.0
    policy: bool = field(default=False)

    def add(
        self, result: LossGradient, tokens: TrainedTokens, entropies: Tensor, *, policy_loss: bool, scale: float
    ) -> None:
        self.loss += float(result.loss.sum()) * scale
        self.tokens += len(entropies)
        self.entropy += float(entropies.sum())
        if not policy_loss:
            return
        self.policy = True
        log_ratio = tokens.log_ratio
        ratio = log_ratio.exp()
        self.ratio += float(ratio.sum())
        self.ratio_max = max(self.ratio_max, float(ratio.max()))
        self.k1 -= float(log_ratio.sum())
        self.k3 += float((ratio - 1 - log_ratio).sum())
        if result.clipped is not None:
            self.clipped = (self.clipped or 0.0) + float(result.clipped.sum())

    def metrics(self) -> dict[str, float]:
        """`loss` is the request's total; the others are means over trained tokens, `ratio_max` the largest ratio.

        kl_sampler_trainer_k1 and _k3 estimate KL(sampler ‖ trainer) from the sampler's tokens, k1 = q − lp and
        k3 = ratio − 1 − log ratio.
        """
        count = max(1, self.tokens)
        metrics = {"loss": self.loss, "tokens": float(self.tokens), "entropy": self.entropy / count}
        if self.policy:
            metrics |= {
                "ratio_mean": self.ratio / count,
                "ratio_max": self.ratio_max,
                "kl_sampler_trainer_k1": self.k1 / count,
                "kl_sampler_trainer_k3": self.k3 / count,
            }
        if self.clipped is not None:
            metrics["clip_fraction"] = self.clipped / count
        return metrics


def scatter(example: Example, numbers: Tensor) -> dict[str, Any]:
    """Numbers of the trained positions, [n, K], as a wire tensor of the datum's length, 0 where nothing is trained."""
    full = torch.zeros(example.length, numbers.shape[1])
    full[example.positions] = numbers
    shape = list(full.shape) if example.soft else [example.length]
    return {"dtype": "float32", "shape": shape, "values": full.flatten().tolist()}
