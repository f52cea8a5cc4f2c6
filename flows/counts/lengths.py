"""How long completions are taken to be before any has been drawn, and how long prompts are."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from algorithms.spans import Span
from flows.checks.prepared import Prepared
from flows.config import ConfigError

LOOKED_AT = 256
"""Examples that a mean length is taken of: enough to tell it to within a few percent."""

Source = Literal["half_of_max_tokens", "option", "earlier_run", "ignore_eos"]


@dataclass(frozen=True, slots=True)
class Typical:
    """How long a typical sampled completion is.

    Args:
        tokens: its tokens.
        source: who says so.
        run: the folder of the earlier run that says so.
    """

    tokens: float
    source: Source
    run: str | None = None


@dataclass(frozen=True, slots=True)
class Lengths:
    """Tokens of a prompt and of a completion.

    Args:
        prompt: the mean, of the first training examples.
        longest_prompt: of those.
        completion: at least one, at most `sampling.max_tokens`.
        typical: where the typical one is from.
    """

    prompt: float
    longest_prompt: int
    completion: Span
    typical: Typical


def lengths(prepared: Prepared, said: Typical | None = None) -> Lengths:
    """The lengths of a run.

    Half of `sampling.max_tokens` is taken where nobody says better, and not the length of the data's answers: a model
    that has not learnt yet when to stop talks on, mostly to the end.

    Args:
        prepared: its checked inputs.
        said: the completions' typical length, where it is known better.

    Raises:
        ConfigError: `said` is not within 1…`sampling.max_tokens`.
    """
    prompts = [len(prepared.renderer.prompt_tokens(one)) for one in prepared.data.train[:LOOKED_AT]]
    most = prepared.config.sampling.max_tokens
    if prepared.config.sampling.ignore_eos:
        typical = Typical(most, "ignore_eos")
        return Lengths(fmean(prompts), max(prompts), Span.exactly(float(most)), typical)
    typical = said or Typical(max(1.0, most / 2), "half_of_max_tokens")
    if not 1 <= typical.tokens <= most:
        raise ConfigError(
            f"--completion-tokens {typical.tokens:g}: a completion has 1 to sampling.max_tokens = {most} tokens"
        )
    return Lengths(fmean(prompts), max(prompts), Span(1.0, typical.tokens, float(most)), typical)
