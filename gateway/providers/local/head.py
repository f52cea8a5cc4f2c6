"""From hidden states to the log-probs of chosen tokens, without ever keeping a [positions, vocabulary] array.

∂ log p(x) / ∂h = W[x] − Σ_v p(v)·W[v]. The second term is the same for every token asked at a position, so the forward
pass keeps that one vector a position, and whatever loss the caller builds on the log-probs needs no logits again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from gateway.providers.local.products import product

# Positions whose logits exist at one time: 256 × 49,152 fp32 are 50 MB, and the product is already at full speed.
CHUNK = 256


class TokenLogprobs(torch.autograd.Function):
    """(states [U, d], head [V, d], row of each pair [n], token of each pair [n]) → (log-probs [n], entropies [U]).

    `states` have passed the final norm; `rows` must be sorted, and several pairs may ask at one position. The entropies
    are exact and carry no gradient.
    """

    @staticmethod
    def forward(ctx: Any, states: Tensor, head: Tensor, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        logprobs, entropies = torch.empty(len(rows)), torch.empty(len(states))
        expected = torch.empty_like(states)
        for start, stop, pairs in chunks(rows, len(states)):
            logits = product(states[start:stop], head)
            total = torch.logsumexp(logits, -1)
            logprobs[pairs] = logits[rows[pairs] - start, tokens[pairs]] - total[rows[pairs] - start]
            probabilities = torch.exp(logits - total[:, None])
            # H = log Z − E[logit]; the expectation as a product of a row and a column needs no third array.
            entropies[start:stop] = total - torch.bmm(probabilities[:, None], logits[:, :, None])[:, 0, 0]
            torch.mm(probabilities, head, out=expected[start:stop])
        ctx.save_for_backward(expected, rows, tokens)
        ctx.head = head
        ctx.mark_non_differentiable(entropies)
        return logprobs, entropies

    @staticmethod
    def backward(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor, None, None, None]:
        expected, rows, tokens = ctx.saved_tensors
        total = torch.zeros(len(expected)).index_add_(0, rows, gradient)
        states_gradient = expected.mul(-total[:, None])
        states_gradient.index_add_(0, rows, gradient[:, None] * ctx.head[tokens])
        return states_gradient, None, None, None


@torch.no_grad()
def token_logprobs(states: Tensor, head: Tensor, rows: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """As `TokenLogprobs`, where no gradient will be asked for."""
    logprobs, entropies = torch.empty(len(rows)), torch.empty(len(states))
    for start, stop, pairs in chunks(rows, len(states)):
        logits = product(states[start:stop], head)
        total = torch.logsumexp(logits, -1)
        logprobs[pairs] = logits[rows[pairs] - start, tokens[pairs]] - total[rows[pairs] - start]
        probabilities = torch.exp(logits - total[:, None])
        entropies[start:stop] = total - torch.bmm(probabilities[:, None], logits[:, :, None])[:, 0, 0]
    return logprobs, entropies


@torch.no_grad()
def top_logprobs(states: Tensor, head: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The `count` most likely tokens at each position and their log-probs, each [U, count], most likely first."""
    tokens, logprobs = [], []
    for start in range(0, len(states), CHUNK):
        logits = product(states[start : start + CHUNK], head)
        best = logits.topk(min(count, logits.shape[-1]), -1)
        tokens.append(best.indices)
        logprobs.append(best.values - torch.logsumexp(logits, -1, keepdim=True))
    return torch.cat(tokens), torch.cat(logprobs)


def chunks(rows: Tensor, positions: int) -> Iterator[tuple[int, int, slice]]:
    """Ranges of positions, each with the range of pairs that ask there."""
    starts = torch.arange(0, positions + CHUNK, CHUNK)
    bounds = torch.searchsorted(rows, starts).tolist()
    for index, start in enumerate(range(0, positions, CHUNK)):
        yield start, min(start + CHUNK, positions), slice(bounds[index], bounds[index + 1])
