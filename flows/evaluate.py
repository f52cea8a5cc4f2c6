"""Held-out measurement: a persisted subflow, so that a Retry does not pay for it again."""

from __future__ import annotations

from algorithms import forward_backward_payload, mean_nll, request_seed, sft_datum
from flows.attempt import Attempt
from flows.lifecycle import block_flow
from flows.outcome import EvaluationOutcome
from flows.rollout import draw
from tasks.events import emit
from tasks.operations import forward
from tasks.policy import Opaque, Policy
from tasks.scoring import Group, score

# Rounds of `request_seed` that no training request uses.
SAMPLED_ROUND = 1_000_003
GREEDY_ROUND = 1_000_004

# A reply is correct when its reward, without any bonus, is full.
CORRECT = 1.0


@block_flow("evaluate", run_name="evaluate {when}")
async def evaluate(
    attempt: Attempt, when: str, state_id: str | None, with_loss: bool = False
) -> EvaluationOutcome | None:
    """Accuracy on held-out prompts (share of replies with full reward) and, if asked, the loss on their answers."""
    section = attempt.config.evaluation
    if not (section.enabled and attempt.inputs.heldout):
        return None
    policy = await attempt.policy(state_id)
    loss = await _heldout_loss(attempt, policy) if with_loss else None
    drawn = await _measure(attempt, policy, section.temperature, section.samples, SAMPLED_ROUND)
    greedy = await _measure(attempt, policy, 0.0, 1, GREEDY_ROUND) if section.greedy else []
    sequences = [sequence for group in drawn for sequence in group.sequences]
    outcome = EvaluationOutcome(
        when=when,
        prompts=len(drawn),
        samples=section.samples,
        temperature=section.temperature,
        accuracy=_accuracy(drawn),
        greedy_accuracy=_accuracy(greedy),
        finished_fraction=sum(s["stop_reason"] == "stop" for s in sequences) / len(sequences) if sequences else None,
        loss=loss,
        usage=policy.take_meter().flat(),
    )
    attempt.folder.write_samples(f"evaluation-{when}", [row for group in drawn for row in group.sample_rows()])
    emit("evaluated", **outcome.model_dump(exclude={"usage"}))
    return outcome


async def _measure(attempt: Attempt, policy: Policy, temperature: float, samples: int, seed_round: int) -> list[Group]:
    """Draw and score `samples` completions of every held-out prompt."""
    examples = attempt.inputs.heldout
    seeds = [request_seed(attempt.config.seed, 0, place, seed_round) for place in range(len(examples))]
    groups, _skipped = await draw(attempt, policy, examples, seeds, num_samples=samples, temperature=temperature)
    inputs = attempt.inputs
    return (await score(inputs.renderer, Opaque(groups), inputs.evaluation_rewards, attempt.pool)).groups


async def _heldout_loss(attempt: Attempt, policy: Policy) -> float:
    """Mean negative log-likelihood of the held-out answers, nats per token."""
    data = [sft_datum(prompt, answer) for prompt, answer in attempt.inputs.pairs(attempt.inputs.heldout)]
    answer = await forward(policy, forward_backward_payload(data, "cross_entropy"), "forward held-out")
    return mean_nll(data, answer.result["loss_outputs"])


def _accuracy(groups: list[Group]) -> float | None:
    """Share of correct completions; one that could not be scored is not correct."""
    rewards = [reward for group in groups for reward in group.rewards]
    return sum(reward is not None and reward >= CORRECT for reward in rewards) / len(rewards) if rewards else None
