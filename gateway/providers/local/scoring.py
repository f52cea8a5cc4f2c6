"""`logprobs`: teacher-forced log-probs of whole sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from gateway.providers.local.forward import Network, final_norm, hidden_states
from gateway.providers.local.head import token_logprobs
from gateway.providers.local.packing import pack_sequences
from gateway.providers.local.sampler import PromptTop, prompt_top


@dataclass
class Scored:
    """Log-probs of every token but the first, and where asked the likeliest tokens by position."""

    logprobs: list[float | None]
    top: PromptTop | None = None


@torch.no_grad()
def score(network: Network, sequences: Sequence[list[int]], tops: Sequence[int], max_tokens: int) -> list[Scored]:
    """Score `sequences`; `tops[i]` is how many likeliest tokens a position of sequence i should list, 0 for none."""
    answers = [Scored([None], [None] if top else None) for top in tops]
    longer = [number for number, sequence in enumerate(sequences) if len(sequence) > 1]
    packs = pack_sequences(
        [sequences[number][:-1] for number in longer],
        max_tokens=max_tokens,
        break_even=network.attention_break_even(),
    )
    for pack in packs:
        states = final_norm(network.base, hidden_states(network, pack))
        members = sorted(pack.paths)
        nodes = torch.cat([pack.paths[place] for place in members])
        targets = torch.cat([torch.tensor(sequences[longer[place]][1:]) for place in members])
        order = torch.argsort(nodes, stable=True)
        found, _ = token_logprobs(states, network.base.head, nodes[order], targets[order])
        logprobs = torch.empty_like(found)
        logprobs[order] = found
        for place, part in zip(members, logprobs.split([len(pack.paths[place]) for place in members]), strict=True):
            number = longer[place]
            answers[number].logprobs += part.tolist()
            if tops[number]:
                # One state more than is read: prompt_top leaves out the last, which predicts what is not there.
                path = pack.paths[place]
                answers[number].top = prompt_top(network, states[torch.cat([path, path[-1:]])], tops[number])
    return answers
