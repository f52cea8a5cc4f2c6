"""The tokens that one example costs: drawn and trained once in a cycle, or measured once."""

from __future__ import annotations

from dataclasses import dataclass

from algorithms import ALGORITHMS
from algorithms.preferences import Row, pair_data, pair_up
from algorithms.sft import sft_data
from flows.checks.planned_prompts import Case, frozen_prompt, starting_prompt
from flows.checks.prepared import Prepared
from flows.config import DistillConfig, DpoConfig, SftConfig
from tasks.examples import Example
from tasks.preferences import preferences


@dataclass(frozen=True, slots=True)
class Tokens:
    """By the ledger's words; `frozen` is of `prefill` what a teacher or a reference reads."""

    prefill: float = 0
    sampled: float = 0
    trained: float = 0
    frozen: float = 0

    def __add__(self, other: Tokens) -> Tokens:
        return Tokens(
            self.prefill + other.prefill,
            self.sampled + other.sampled,
            self.trained + other.trained,
            self.frozen + other.frozen,
        )

    def __mul__(self, times: float) -> Tokens:
        return Tokens(self.prefill * times, self.sampled * times, self.trained * times, self.frozen * times)


NOTHING = Tokens()


def trained_once(prepared: Prepared, example: Example, completion: float, case: Case) -> Tokens:
    """An example's place in a cycle's batch, with all steps on it."""
    config = prepared.config
    if isinstance(config, SftConfig):
        return Tokens(trained=config.steps_per_batch * _answer_inputs(prepared, example))
    if isinstance(config, DpoConfig):
        inputs = _pair_inputs(prepared, example)
        return Tokens(prefill=2 * inputs, trained=config.steps_per_batch * inputs, frozen=inputs)
    return _group(prepared, example, completion, case)


def measured_once(prepared: Prepared, example: Example, completion: float) -> Tokens:
    """A held-out example's place in a measurement."""
    config, cost = prepared.config, NOTHING
    if isinstance(config, SftConfig):
        cost += Tokens(prefill=_answer_inputs(prepared, example))
    if isinstance(config, DpoConfig):
        inputs = _pair_inputs(prepared, example)
        cost += Tokens(prefill=2 * inputs, frozen=inputs)
    prompt = len(prepared.renderer.prompt_tokens(example))
    length = _length(prepared, prompt, completion)
    if prepared.evaluation_rewards and length:
        drawn = [config.evaluation.samples, *([1] if config.evaluation.greedy else [])]
        cost += Tokens(prefill=prompt * len(drawn), sampled=sum(drawn) * length)
    return cost


def _group(prepared: Prepared, example: Example, completion: float, case: Case) -> Tokens:
    """A group of completions: drawn, put to a frozen run or a critic where there is one, trained."""
    config = prepared.config
    group_size, steps = config.group_size, config.steps_per_batch  # type: ignore[attr-defined] # whoever samples has it
    length = _length(prepared, len(prepared.renderer.prompt_tokens(example)), completion)
    if not length:
        return NOTHING
    prompt = starting_prompt(prepared, example, completion, case)
    drawn = Tokens(prefill=prompt, sampled=group_size * length)
    roles = set(config.needs(ALGORITHMS[prepared.algorithm]).extra_runs)
    if "critic" in roles:
        inputs = group_size * (prompt + length - 1)
        return drawn + Tokens(prefill=inputs, trained=2 * steps * inputs)
    asked = 0.0
    if roles:
        asked, length = _asked(prepared, example, prompt, length, case)
    inputs = min(prompt + length, prepared.context_tokens) - 1 if length else 0.0
    return drawn + Tokens(prefill=group_size * asked, trained=steps * group_size * inputs, frozen=group_size * asked)


def _asked(prepared: Prepared, example: Example, prompt: float, length: float, case: Case) -> tuple[float, float]:
    """Tokens that a frozen run reads of a completion and what stands before it; tokens of it that are then trained.

    A completion that a teacher can be asked about in part only is trained in part.
    """
    taught = isinstance(prepared.config, DistillConfig)
    room = prepared.teacher_context_tokens if taught else prepared.context_tokens
    before = frozen_prompt(prepared, example, prompt, length, case)
    if before is not None and case == "most":
        before = min(before, max(room - length, prompt))
    if before is None or before >= room:
        return 0.0, 0.0 if taught else length
    length = min(length, room - before)
    return before + length, length


def _length(prepared: Prepared, prompt: float, completion: float) -> float:
    """Tokens of a completion behind a prompt; 0 where the prompt fills the context, and is not sent."""
    return max(0.0, min(completion, prepared.config.sampling.max_tokens, prepared.context_tokens - prompt))


def _answer_inputs(prepared: Prepared, example: Example) -> int:
    """Inputs of an answer's datum; 0 where it does not fit, or there is none."""
    data = sft_data(prepared.pairs([example]), max_sequence_tokens=prepared.context_tokens).data
    return sum(len(datum["input"]["token_ids"]) for datum in data)


def _pair_inputs(prepared: Prepared, example: Example) -> int:
    """Inputs of both datums of a pair; 0 where it cannot be used."""
    renderer = prepared.renderer
    (item,) = preferences([example])
    prompt = renderer.prompt_tokens(item)
    rows = [Row("", "chosen", prompt, renderer.completion_tokens(item.chosen))]
    rows.append(Row("", "rejected", prompt, renderer.completion_tokens(item.rejected)))
    pairs = pair_up(rows, max_sequence_tokens=prepared.context_tokens).pairs
    return sum(len(datum["input"]["token_ids"]) for datum in pair_data(pairs))
