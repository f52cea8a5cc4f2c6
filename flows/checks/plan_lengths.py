"""How long completions are taken to be before any has been drawn, and how long prompts are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from algorithms.spans import Span
from flows.checks.prepared import Prepared
from flows.config import ConfigError
from tasks.examples import Example

LOOKED_AT = 256
"""Examples that a mean length is taken of: enough to tell it to within a few percent."""


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a prompt and of a completion.

    Args:
        prompt: the mean, of the first training examples.
        longest_prompt: of those.
        completion: at least one, at most `sampling.max_tokens`.
        why: where the typical one is from.
    """

    prompt: float
    longest_prompt: int
    completion: Span
    why: str


def lengths(prepared: Prepared, given: float | None = None) -> Lengths:
    """The lengths of a run.

    Args:
        prepared: its checked inputs.
        given: the completions' typical length, where the reader knows better.

    Raises:
        ConfigError: `given` is not within 1…`sampling.max_tokens`.
    """
    examples = prepared.data.train[:LOOKED_AT]
    prompts = [len(prepared.renderer.prompt_tokens(one)) for one in examples]
    sampling = prepared.config.sampling
    if sampling.ignore_eos:
        return Lengths(fmean(prompts), max(prompts), Span.exactly(float(sampling.max_tokens)), "sampling.ignore_eos")
    typical, why = _typical(prepared, examples, given)
    most = max(typical, float(sampling.max_tokens))
    return Lengths(fmean(prompts), max(prompts), Span(min(1.0, typical), typical, most), why)


def _typical(prepared: Prepared, examples: Sequence[Example], given: float | None) -> tuple[float, str]:
    most = prepared.config.sampling.max_tokens
    if given is not None:
        if not 1 <= given <= most:
            raise ConfigError(
                f"--completion-tokens {given:g}: a completion has 1 to sampling.max_tokens = {most} tokens"
            )
        return given, "--completion-tokens"
    answers = [len(tokens) for _, tokens in prepared.pairs(examples)]
    if answers:
        return min(fmean(answers), most), "the data's answers are so long on average; --completion-tokens says better"
    return most / 2, "half of sampling.max_tokens; --completion-tokens says better"
