"""Held-out measurement: a persisted subflow, so that a Retry does not pay for it again."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from prefect.logging import get_run_logger

from algorithms import forward_backward_payload, mean_nll, request_seed
from algorithms.sft import sft_data
from flows.counts.operations import HELDOUT_EXAMPLES
from flows.durable.attempt import Attempt
from flows.durable.budget.parts import begin_measurement
from flows.durable.outcome import EvaluationOutcome, Start
from flows.lifecycle import block_flow
from flows.parts.heldout import shares
from flows.parts.record import require_some_scored
from flows.parts.rollout import draw
from tasks.events import emit
from tasks.operations import forward, in_order
from tasks.run import Opaque, Run
from tasks.scoring import Group, score

# Rounds of `request_seed` that no training request uses.
SAMPLED_ROUND = 1_000_003
GREEDY_ROUND = 1_000_004

Measure = Callable[[Attempt, Run], Awaitable[dict[str, float]]]
"""What an algorithm measures on the held-out examples itself: `loss`, `margin`, `preference_accuracy`."""


@block_flow("evaluate", run_name="evaluate {when}")
async def evaluate(
    attempt: Attempt, when: str, start: Start, measure: Measure | None = None
) -> EvaluationOutcome | None:
    """Accuracy and pass@k on held-out prompts, each with its interval, and what `measure` adds; `start` is measured.

    `when` is "before", "cycle-8" or "after". Prefect matches an evaluation of a former attempt by the order of calls:
    whoever calls must come here in the same order in every attempt.
    """
    section = attempt.config.evaluation
    if not (section.enabled and attempt.inputs.heldout):
        return None
    await begin_measurement(attempt)
    policy = await attempt.policy(start)
    measured = await measure(attempt, policy) if measure else {}
    drawn, skipped = await _measure(attempt, policy, section.temperature, section.samples, SAMPLED_ROUND)
    greedy, _ = await _measure(attempt, policy, 0.0, 1, GREEDY_ROUND) if section.greedy else ([], 0)
    sequences = [sequence for group in drawn for sequence in group.sequences]
    outcome = EvaluationOutcome(
        when=when,
        cycle=len(attempt.rows),
        state_id=start.state_id,
        prompts=len(drawn),
        skipped=skipped,
        samples=section.samples,
        unscored=sum(reward is None for group in drawn for reward in group.rewards),
        temperature=section.temperature,
        **shares(drawn, greedy, section.pass_at),
        finished_fraction=sum(s["stop_reason"] == "stop" for s in sequences) / len(sequences) if sequences else None,
        **measured,
        attempt=attempt.scope.attempt,
        usage=attempt.scope.meter.take(),
    )
    attempt.folder.write_samples(f"evaluation-{when}", [row for group in drawn for row in group.sample_rows()])
    get_run_logger().info("held out, %s: accuracy %s %s", when, outcome.accuracy, measured or "")
    emit("evaluated", **outcome.told)
    return outcome


async def _measure(
    attempt: Attempt, policy: Run, temperature: float, samples: int, seed_round: int
) -> tuple[list[Group], int]:
    """Draw and score `samples` completions of every held-out prompt; (groups, prompts skipped)."""
    inputs = attempt.inputs
    if not inputs.evaluation_rewards:
        return [], 0
    seeds = [request_seed(attempt.config.seed, 0, place, seed_round) for place in range(len(inputs.heldout))]
    drawn = await draw(attempt, policy, inputs.heldout, seeds, sizes=[samples] * len(seeds), temperature=temperature)
    groups = [group for group in drawn if group is not None]
    scored = await score(inputs.renderer, Opaque(groups), inputs.evaluation_rewards, attempt.pool)
    require_some_scored(scored.groups, scored.failures, "the held-out evaluation")
    return scored.groups, drawn.count(None)


async def heldout_loss(attempt: Attempt, policy: Run) -> dict[str, float]:
    """`loss`: mean negative log-likelihood of the held-out answers that fit the context, nats per token."""
    pairs = attempt.inputs.pairs(attempt.inputs.heldout)
    data = sft_data(pairs, max_sequence_tokens=attempt.inputs.context_tokens).data
    if not data:
        return {}
    batches = [data[start : start + HELDOUT_EXAMPLES] for start in range(0, len(data), HELDOUT_EXAMPLES)]
    answers = await in_order(
        *(forward(policy, forward_backward_payload(batch, "cross_entropy"), "forward held-out") for batch in batches)
    )
    return {"loss": mean_nll(data, [output for answer in answers for output in answer.result["loss_outputs"]])}
