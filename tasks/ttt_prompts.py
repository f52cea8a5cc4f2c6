"""What test-time training asks: the bare problem, or the problem and an earlier solution to improve on.

After arXiv 2601.16175, whose starting states are solutions found before, with what they scored.
"""

from __future__ import annotations

from tasks.examples import Example, Message
from tasks.prompt_templates import check_template, rephrase

IMPROVE_TEMPLATE = (
    "{question}\n\n"
    "An earlier attempt at this problem scored {reward}; higher is better. This was it:\n\n"
    "{attempt}\n\n"
    "Find out what keeps it from scoring higher, and give a better solution to the problem."
)


def check_improve_template(template: str) -> None:
    """Raises ValueError unless the template holds {question}, {attempt} and {reward}, and nothing else."""
    check_template(template, ["question", "attempt", "reward"])


def start_prompt(
    example: Example, solution_text: str | None, reward: float | None, template: str = IMPROVE_TEMPLATE
) -> tuple[Message, ...]:
    """The conversation that a group starts from.

    Args:
        example: the problem.
        solution_text: the earlier solution to improve on; None for the bare problem.
        reward: what that solution scored, shown with four significant digits; None for the bare problem.
        template: how the two are put into the problem's last question.

    Raises:
        ValueError: a solution without its reward, or a template whose placeholders are others.
        DataError: the example has no user message.
    """
    if solution_text is None:
        return example.messages
    if reward is None:
        raise ValueError("reward is None: an earlier solution is shown with what it scored")
    return rephrase(example, template, attempt=solution_text, reward=f"{reward:.4g}")
