"""Two runs at once: a frozen run answers the log-probs of what the policy sampled. Subflows of their own, so that the
second run and every one of its operations stands in the UI beside the first's.

The frozen run — a teacher, or the policy's own initial weights as reference — is created once an attempt, synced once,
never trained and never sampled. It is made of the configuration alone: a resumed run meets the same one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from algorithms import completion_logprobs, completion_topk
from flows.config import TeacherConfig
from flows.durable.attempt import Attempt
from flows.durable.cycles import Cycle
from flows.durable.run_spec import RunSpec
from flows.lifecycle import inner_flow
from tasks.operations import current_sampler, in_order, logprobs
from tasks.run import Run
from tasks.scoring import Group

Prompts = Sequence[Sequence[Sequence[int] | None]]
"""For each group, for each of its sequences: the prompt's tokens, or None where nothing is to be asked."""


def teacher_spec(attempt: Attempt, section: TeacherConfig) -> RunSpec:
    """What the teacher is made of: its own model or the policy's, the base weights or those of a state or adapter."""
    policy = attempt.config
    return RunSpec(
        provider=section.provider or policy.model.provider,
        model=section.name or policy.model.name,
        rank=section.rank or policy.lora.rank,
        alpha=section.alpha or policy.lora.alpha,
        seed=policy.seed,
        state_id=section.state_id,
        artifact_id=section.artifact_id,
    )


async def open_teacher(attempt: Attempt, section: TeacherConfig) -> Run:
    """The attempt's teacher; opened by the first block that needs it."""
    session = "main" if section.session == "shared" else "teacher"
    return await _open(attempt, "teacher", teacher_spec(attempt, section), session)


async def open_self_teacher(attempt: Attempt) -> Run:
    """The policy's own initial weights as its teacher: what it knows more is in its prompt."""
    return await _open(attempt, "teacher", attempt.initial_weights)


async def open_reference(attempt: Attempt) -> Run:
    """The policy's initial weights, frozen: the same in every attempt, however far the policy has come."""
    return await _open(attempt, "reference", attempt.initial_weights)


async def _open(attempt: Attempt, name: str, spec: RunSpec, session: str = "main") -> Run:
    """The run if this attempt has it, without a subflow that would only say so."""
    return attempt.scope.runs.get(name) or await open_frozen_run(attempt, name, spec, session)


@inner_flow("open-teacher", run_name="open {name}")
async def open_frozen_run(attempt: Attempt, name: str, spec: RunSpec, session: str) -> Run:
    """Create the second run. Its one snapshot is taken by whoever first asks for log-probs: DPO, which asks by
    `forward`, needs none.
    """
    return await attempt.frozen_run(name, spec, session=session)


class Question:
    """What a frozen run is asked in a cycle: every group's completions, each behind a prompt of its own."""

    __slots__ = ("context_tokens", "groups", "prompts", "topk", "who")

    def __init__(
        self,
        who: Literal["teacher", "reference"],
        groups: Sequence[Group],
        prompts: Prompts,
        *,
        context_tokens: int,
        topk: int = 0,
    ) -> None:
        self.who = who
        self.groups = groups
        self.prompts = prompts
        self.context_tokens = context_tokens
        self.topk = topk

    @property
    def has_prompts(self) -> bool:
        """Whether any completion with a token has a prompt to stand behind."""
        return any(
            prompt is not None and sequence["tokens"]
            for group, prompts in zip(self.groups, self.prompts, strict=True)
            for sequence, prompt in zip(group.sequences, prompts, strict=True)
        )

    def sequences(self) -> list[tuple[dict[str, Any], Sequence[int]]]:
        """(sequence, prompt) of every completion that can be asked about; the others are left without an answer."""
        asked = []
        for group, prompts in zip(self.groups, self.prompts, strict=True):
            for sequence, prompt in zip(group.sequences, prompts, strict=True):
                sequence |= {f"{self.who}_logprobs": None, **({f"{self.who}_topk": None} if self.topk else {})}
                if sequence["tokens"] and prompt is not None and len(prompt) < self.context_tokens:
                    asked.append((sequence, prompt))
        return asked


async def reference_logprobs(cycle: Cycle, groups: Sequence[Group]) -> None:
    """Give every sequence the `reference_logprobs` of its completion's tokens, on the policy's own prompt."""
    reference = await open_reference(cycle.attempt)
    prompts = [[group.prompt_tokens] * len(group.sequences) for group in groups]
    question = Question("reference", groups, prompts, context_tokens=cycle.attempt.inputs.context_tokens)
    await frozen_logprobs(reference, question, cycle.label)


async def teacher_logprobs(
    cycle: Cycle, teacher: Run, groups: Sequence[Group], prompts: Prompts, *, topk: int = 0
) -> None:
    """Give every sequence its `teacher_logprobs` behind its own teacher prompt; a prompt of None asks for none.

    With `topk` also `teacher_topk`, the teacher's likeliest tokens at each place. A completion that does not fit the
    teacher's context behind that prompt is cut to what does, for the student as well.
    """
    room = cycle.attempt.inputs.teacher_context_tokens
    question = Question("teacher", groups, prompts, context_tokens=room, topk=topk)
    cycle.metrics["teacher_truncated"] = await frozen_logprobs(teacher, question, cycle.label)


@inner_flow("frozen-logprobs", run_name="{question.who} log-probs, cycle {cycle}")
async def frozen_logprobs(run: Run, question: Question, cycle: int) -> int:
    """Log-probs of all of a cycle's completions, one operation each, all at once; how many were cut to the context.

    Each sequence gets `<who>_logprobs`: the last n entries of the answer, whatever a provider puts in front.

    Raises:
        ValueError: every prompt fills the frozen run's context: each cycle would be paid for and teach nothing.
    """
    who, asked = question.who, question.sequences()
    if not asked and question.has_prompts:
        raise ValueError(
            f"not one completion of the cycle fits behind its {who}'s prompt: the context holds "
            f"{question.context_tokens} tokens; shorten the template, or what is put into it"
        )
    sampler_id = await current_sampler(run)
    cut = sum(_fit(sequence, question.context_tokens - len(prompt)) for sequence, prompt in asked)
    answers = await in_order(
        *(
            logprobs(run, sampler_id, [*prompt, *sequence["tokens"]], f"{who} logprobs", topk=question.topk)
            for sequence, prompt in asked
        )
    )
    for (sequence, _), answer in zip(asked, answers, strict=True):
        length = len(sequence["tokens"])
        sequence[f"{who}_logprobs"] = completion_logprobs(answer.result["logprobs"], length)
        if question.topk:
            sequence[f"{who}_topk"] = completion_topk(answer.result["topk"], length)
    return cut


def _fit(sequence: dict[str, Any], room: int) -> bool:
    """Cut a completion to `room` tokens; whether there was anything to cut."""
    if len(sequence["tokens"]) <= room:
        return False
    sequence["tokens"], sequence["logprobs"] = sequence["tokens"][:room], sequence["logprobs"][:room]
    return True
