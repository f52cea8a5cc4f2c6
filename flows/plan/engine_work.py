"""What a run has the embedded engine hold: runs, prompts and completions, and how they are packed."""

from __future__ import annotations

from dataclasses import dataclass

PACK_TOKENS = 1024
"""The gateway's default: distinct tokens that pass through the network at one time, but a longer sequence alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a run has the engine hold.

    Args:
        rank: of the adapters.
        trained: runs that are trained: the policy, a critic.
        frozen: runs with weights of their own beside those: a teacher, a reference that began from a saved state.
        prompts: that a `forward_backward` has, each once.
        samples: completions of each, or given replies.
        prompt: tokens of a prompt.
        longest_prompt: tokens of the longest.
        completion: tokens of a completion.
        sampled: whether completions are drawn here, all at one time.
        even: whether completions are all as long.
    """

    rank: int
    trained: int = 1
    frozen: int = 0
    prompts: int
    samples: int
    prompt: float
    longest_prompt: float
    completion: float
    sampled: bool
    even: bool = False

    @property
    def rows(self) -> int:
        """Completions that are drawn at one time."""
        return self.prompts * self.samples if self.sampled else 0

    @property
    def tree(self) -> float:
        """Distinct tokens of a prompt with all that follows it."""
        return self.prompt + self.samples * self.completion

    @property
    def packed(self) -> float:
        """Distinct tokens of a `forward_backward`."""
        return self.prompts * self.tree

    @property
    def pack(self) -> float:
        """Those of its largest pack: whole trees, which fill it where they differ."""
        room = max(PACK_TOKENS, self.longest_prompt + self.completion)
        if self.even and self.tree < room:
            room = room // self.tree * self.tree
        return min(self.packed, room)
