"""How examples look to the model: the text behind the chat template, and which of its tokens are trained."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from algorithms import ALGORITHMS, sft_datum
from flows.checks.prepared import Prepared
from flows.config import TttConfig
from tasks.examples import Example

SHOWN = 3


@dataclass(frozen=True, slots=True)
class Token:
    """A token's text, special tokens among it, and whether it is trained."""

    text: str
    trained: bool


@dataclass(frozen=True, slots=True)
class Sample:
    """One example as the model meets it.

    Args:
        id: the example's.
        which: what the reply is: "answer", "chosen", "rejected"; "sampled" where it is still to be drawn.
        prompt: the text behind the chat template, special tokens among it. None of it is trained.
        prompt_tokens: how many tokens that is.
        reply: the reply's tokens; empty where it is still to be drawn.
        completions: how many are drawn; 0 where the reply is given.
        max_tokens: of each of those.
    """

    id: str
    which: str
    prompt: str
    prompt_tokens: int
    reply: list[Token]
    completions: int = 0
    max_tokens: int = 0


def samples(prepared: Prepared) -> list[Sample]:
    """The first examples that are trained on, in the run's own order; of DPO both replies of each."""
    config, train = prepared.config, prepared.data.train
    if isinstance(config, TttConfig):
        examples = [config.problem_of(train)]
    else:
        examples = [prepared.example_at(place) for place in range(min(SHOWN, len(train)))]
    return [sample for example in examples for sample in _samples(prepared, example)]


def _samples(prepared: Prepared, example: Example) -> Iterator[Sample]:
    renderer = prepared.renderer
    prompt = renderer.prompt_tokens(example)
    text = renderer.decode(prompt, skip_special=False)
    if ALGORITHMS[prepared.algorithm].rollouts:
        room = prepared.context_tokens - len(prompt)
        longest = max(0, min(prepared.config.sampling.max_tokens, room))
        drawn = getattr(prepared.config, "group_size", 1)
        yield Sample(example.id, "sampled", text, len(prompt), [], completions=drawn, max_tokens=longest)
        return
    names = ("chosen", "rejected") if prepared.algorithm == "dpo" else ("answer",)
    for which, reply in zip(names, example.replies, strict=True):
        completion = renderer.completion_tokens(reply)
        # The mask is the datum's own: the weights that are sent.
        weights = sft_datum(prompt, completion)["loss_inputs"]["weights"]["values"][-len(completion) :]
        pieces = [renderer.decode([token], skip_special=False) for token in completion]
        tokens = [Token(piece, bool(weight)) for piece, weight in zip(pieces, weights, strict=True)]
        yield Sample(example.id, which, text, len(prompt), tokens)
