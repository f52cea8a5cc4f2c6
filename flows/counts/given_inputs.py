"""Inputs of the datums that given replies make: what `forward` reads of them, and `forward_backward` trains."""

from __future__ import annotations

from algorithms.preferences import Row, pair_data, pair_up
from algorithms.sft import sft_data
from flows.checks.prepared import Prepared
from flows.config import DpoConfig
from tasks.examples import Example
from tasks.preferences import preferences


def given_inputs(prepared: Prepared, example: Example) -> int:
    """Of an answer's datum, or both of a pair; 0 where what is given does not fit, or cannot be used."""
    return (_pair_inputs if isinstance(prepared.config, DpoConfig) else _answer_inputs)(prepared, example)


def _answer_inputs(prepared: Prepared, example: Example) -> int:
    data = sft_data(prepared.pairs([example]), max_sequence_tokens=prepared.context_tokens).data
    return sum(len(datum["input"]["token_ids"]) for datum in data)


def _pair_inputs(prepared: Prepared, example: Example) -> int:
    renderer = prepared.renderer
    (item,) = preferences([example])
    prompt = renderer.prompt_tokens(item)
    rows = [Row("", "chosen", prompt, renderer.completion_tokens(item.chosen))]
    rows.append(Row("", "rejected", prompt, renderer.completion_tokens(item.rejected)))
    pairs = pair_up(rows, max_sequence_tokens=prepared.context_tokens).pairs
    return sum(len(datum["input"]["token_ids"]) for datum in pair_data(pairs))
