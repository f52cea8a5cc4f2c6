"""The engine learns: reward climbs with GRPO, held-out loss falls with SFT."""

import random
import statistics

from engine_harness import TestRun, datum, sampling, some_tokens

from gateway.providers.local.engine import Engine

GROUPS, GROUP_SIZE, LENGTH = 8, 8, 8


def test_grpo_raises_the_share_of_token_seven(tiny: Engine) -> None:
    run = TestRun.create(tiny, rank=8, alpha=16.0)
    rewards = [grpo_cycle(run, cycle, learning_rate=3e-2) for cycle in range(16)]
    assert statistics.mean(rewards[:2]) < 0.2
    assert statistics.mean(rewards[-3:]) > 0.9


def grpo_cycle(run: TestRun, cycle: int, learning_rate: float) -> float:
    sampler, data, rewards = run.snapshot(), [], []
    for group in range(GROUPS):
        prompt = some_tokens(1000 * cycle + group, 4)
        payload = sampling(prompt, GROUP_SIZE, max_tokens=LENGTH, seed=100 * cycle + group)
        replies = run.do("sample", payload, sampler_id=sampler)["sequences"]
        scores = [reply["tokens"].count(7) / LENGTH for reply in replies]
        rewards += scores
        mean, spread = statistics.mean(scores), statistics.pstdev(scores)
        if spread == 0:
            continue
        for reply, score in zip(replies, scores, strict=True):
            advantage = (score - mean) / spread / (GROUPS * GROUP_SIZE)
            data.append(datum(prompt, reply["tokens"], logprobs=reply["logprobs"], advantages=[advantage] * LENGTH))
    if data:
        run.train(data, "importance_sampling")
        run.step(learning_rate)
    return statistics.mean(rewards)


def test_supervised_training_lowers_the_loss_of_what_was_not_trained_on(tiny: Engine) -> None:
    run = TestRun.create(tiny, rank=8, alpha=16.0)
    chooser = random.Random(0)
    data = [copying(chooser) for _ in range(160)]
    held_out, training_set = data[:32], data[32:]

    def held_out_loss() -> float:
        metrics = run.score(held_out)["metrics"]
        return float(metrics["loss"] / metrics["tokens"])

    before = held_out_loss()
    for step in range(24):
        batch = training_set[32 * (step % 4) : 32 * (step % 4 + 1)]
        run.train(batch)
        run.step(1e-2)
    assert held_out_loss() < 0.5 * before


def copying(chooser: random.Random) -> dict[str, object]:
    """Say the last symbol of the prompt three times: a rule, so that it carries over to prompts not seen."""
    prompt = [chooser.randrange(4, 14) for _ in range(4)]
    return datum(prompt, [prompt[-1]] * 3)


def test_a_second_run_trains_beside_the_first_without_touching_it(tiny: Engine) -> None:
    one, other = TestRun.create(tiny, "one", rank=8), TestRun.create(tiny, "other", rank=8)
    alone = TestRun.create(tiny, "alone", rank=8)
    chooser = random.Random(1)
    for _ in range(3):
        batch, noise = [copying(chooser) for _ in range(4)], [copying(chooser) for _ in range(4)]
        one.train(batch)
        other.train(noise)
        one.step()
        other.step()
        alone.train(batch)
        alone.step()
    assert (one.parameters.flat == alone.parameters.flat).all()
