"""The tokens that one example takes: drawn and trained once in a cycle, or measured once."""

from __future__ import annotations

from algorithms import ALGORITHMS
from flows.checks.prepared import Prepared
from flows.config import DistillConfig, DpoConfig, SftConfig
from flows.counts.given_inputs import given_inputs
from flows.counts.ledger_tokens import NOTHING, Tokens
from flows.counts.prompts import Case, frozen_prompt, starting_prompt
from tasks.examples import Example


class ExampleTokens:
    """Of the examples of a run. Each is tokenized once, however often and by whom it is asked about."""

    __slots__ = ("_lengths", "_roles", "prepared")

    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self._roles = frozenset(prepared.config.needs(ALGORITHMS[prepared.algorithm]).extra_runs)
        self._lengths = prepared.lengths

    def trained(self, example: Example, completion: float, case: Case) -> Tokens:
        """An example's place in a cycle's batch, with all steps on it."""
        config = self.prepared.config
        if isinstance(config, SftConfig):
            return Tokens(trained=config.steps_per_batch * self.inputs(example))
        if isinstance(config, DpoConfig):
            inputs = self.inputs(example)
            return Tokens(prefill=2 * inputs, trained=config.steps_per_batch * inputs, frozen=inputs)
        return self._group(example, completion, case)

    def drawn(self, example: Example, completion: float, case: Case) -> Tokens:
        """A group of completions as they are posted, before anything is made of them; nothing where none are drawn."""
        size, bare = getattr(self.prepared.config, "group_size", 0), self.prompt(example)
        length = _length(self.prepared, bare, completion) if size else 0.0
        if not length:
            return NOTHING
        prompt = starting_prompt(self.prepared, example, bare, completion, case)
        return Tokens(prefill=prompt, sampled=size * length)

    def measured(self, example: Example, completion: float, *, at_once: bool = False) -> Tokens:
        """A held-out example's place in a measurement; `at_once`: without the greedy answers, which are drawn last."""
        config, tokens = self.prepared.config, NOTHING
        if isinstance(config, SftConfig):
            tokens += Tokens(prefill=self.inputs(example))
        if isinstance(config, DpoConfig):
            inputs = self.inputs(example)
            tokens += Tokens(prefill=2 * inputs, frozen=inputs)
        if not self.prepared.evaluation_rewards:
            return tokens
        prompt = self.prompt(example)
        if length := _length(self.prepared, prompt, completion):
            drawn = [config.evaluation.samples, *([1] if config.evaluation.greedy and not at_once else [])]
            tokens += Tokens(prefill=prompt * len(drawn), sampled=sum(drawn) * length)
        return tokens

    def _group(self, example: Example, completion: float, case: Case) -> Tokens:
        """A group of completions: drawn, put to a frozen run or a critic where there is one, trained."""
        prepared, config = self.prepared, self.prepared.config
        size, steps = config.group_size, config.steps_per_batch  # type: ignore[attr-defined] # whoever samples has it
        drawn = self.drawn(example, completion, case)
        if not drawn.sampled:
            return NOTHING
        prompt, length = drawn.prefill, drawn.sampled / size
        if "critic" in self._roles:
            inputs = size * (prompt + length - 1)
            return drawn + Tokens(prefill=inputs, trained=2 * steps * inputs)
        asked = 0.0
        if self._roles:
            asked, length = _asked(prepared, example, prompt, length, case)
        inputs = min(prompt + length, prepared.context_tokens) - 1 if length else 0.0
        return drawn + Tokens(prefill=size * asked, trained=steps * size * inputs, frozen=size * asked)

    def prompt(self, example: Example) -> int:
        """Tokens of what is asked."""
        key = ("prompt", id(example))
        if key not in self._lengths:
            self._lengths[key] = len(self.prepared.renderer.prompt_tokens(example))
        return self._lengths[key]

    def inputs(self, example: Example) -> int:
        """Of the datums that a given reply makes, or a pair of them."""
        key = ("inputs", id(example))
        if key not in self._lengths:
            self._lengths[key] = given_inputs(self.prepared, example)
        return self._lengths[key]


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
