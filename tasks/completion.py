"""What a reward function is given. Standard library only: worker processes import it in a moment."""

from __future__ import annotations

from dataclasses import dataclass

from tasks.examples import Example, Message


@dataclass(frozen=True, slots=True)
class Completion:
    """One reply to score.

    Attributes:
        prompt: the conversation it answers.
        text: the reply as text, special tokens left out.
        token_count: its length in tokens, the stop token included.
        finished: whether it ended by itself (`stop_reason` "stop") rather than at the limit.
        example: the example it was drawn for: `answer` and `extra` are what to compare with.
    """

    prompt: tuple[Message, ...]
    text: str
    token_count: int
    finished: bool
    example: Example
