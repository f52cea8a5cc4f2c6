"""The maths of `algorithms`, through a real engine: what it sends is taken, and teaches what it says."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from engine_harness import TestRun, complete, sampling, some_tokens

from algorithms import dpo, opd, opsd, ppo_critic, sdpo, sft_datum, ttt
from algorithms.distillation import completion_logprobs, completion_topk, distillation_group, reverse_kl
from algorithms.gradient_weights import at_trained
from algorithms.soft_targets import soft_target_group
from gateway.emulation import RULES, check_operation
from gateway.providers.local.engine import Engine
from gateway.providers.local.lora import LoraTensors
from whitney.types import PAYLOADS

Data = list[dict[str, Any]]
PROMPTS = [some_tokens(seed, 4) for seed in range(6)]


def perturbed(tiny: Engine, name: str, seed: int, scale: float = 0.1) -> TestRun:
    """A run whose B is not zero: another model than the base."""
    made = TestRun.create(tiny, name)
    generator = torch.Generator().manual_seed(seed)
    for part, matrix in made.parameters.named():
        if part.endswith(".B"):
            matrix.copy_(torch.randn(matrix.shape, generator=generator) * scale)
    made.weights_changed()
    return made


def position_logprobs(run: TestRun, data: Data) -> list[list[float]]:
    return [output["logprobs"]["values"] for output in run.score(data)["loss_outputs"]]


def preferences() -> list[dpo.Pair]:
    sides = (("chosen", 100), ("rejected", 200))
    rows = [
        dpo.Row(str(i), side, prompt, some_tokens(offset + i, 3 + i % 2))
        for i, prompt in enumerate(PROMPTS)
        for side, offset in sides
    ]
    return dpo.pair_up(rows).pairs


def test_the_weights_that_dpo_sends_have_the_gradient_of_its_loss(tiny: Engine) -> None:
    policy, reference = perturbed(tiny, "policy", 1), TestRun.create(tiny, "reference")
    pairs, beta = preferences(), 0.5
    data = dpo.pair_data(pairs)
    frozen = position_logprobs(reference, data)

    def step() -> dpo.DpoStep:
        return dpo.dpo_step(pairs, position_logprobs(policy, data), frozen, beta=beta, label_smoothing=0.1)

    policy.train(step().data)
    generator = torch.Generator().manual_seed(2)
    directions = {part: torch.randn(matrix.shape, generator=generator) for part, matrix in policy.parameters.named()}
    sent = sum(float((directions[part] * matrix).sum()) for part, matrix in policy.gradient.named())
    width = 3e-4

    def moved(by: float) -> float:
        _shift(policy, policy.parameters, directions, by)
        loss = step().metrics["loss"]
        _shift(policy, policy.parameters, directions, -by)
        return loss

    assert sent == pytest.approx((moved(width) - moved(-width)) / (2 * width), rel=2e-3)


def _shift(run: TestRun, parameters: LoraTensors, directions: dict[str, torch.Tensor], by: float) -> None:
    for part, matrix in parameters.named():
        matrix.add_(directions[part], alpha=by)
    run.weights_changed()


def test_dpo_raises_the_margin_over_the_reference(tiny: Engine) -> None:
    policy, reference = TestRun.create(tiny, "policy"), TestRun.create(tiny, "reference")
    pairs = preferences()
    data = dpo.pair_data(pairs)
    frozen = position_logprobs(reference, data)
    seen = []
    for _ in range(12):
        step = dpo.dpo_step(pairs, position_logprobs(policy, data), frozen, beta=0.5)
        seen.append(step.metrics)
        policy.train(step.data)
        policy.step(1e-2)
    assert seen[0] == pytest.approx(seen[0] | {"loss": 0.693147, "margin": 0.0}, abs=1e-5)
    assert seen[-1]["margin"] > 1.0
    assert seen[-1]["accuracy"] == 1.0


def taught(student: TestRun, teacher: TestRun, cycle: int, *, top: int = 0) -> list[dict[str, Any]]:
    """The student's samples of every prompt, with what the teacher makes of them."""
    sampler, frozen = student.snapshot(), teacher.snapshot()
    sequences = []
    for place, prompt in enumerate(PROMPTS):
        payload = sampling(prompt, 8, max_tokens=4, seed=100 * cycle + place)
        for sequence in student.do("sample", payload, sampler_id=sampler)["sequences"]:
            asked = {"input": {"token_ids": prompt + sequence["tokens"]}, "topk": top}
            answer, count = teacher.do("logprobs", asked, sampler_id=frozen), len(sequence["tokens"])
            sequence |= {"prompt": prompt, "teacher_logprobs": completion_logprobs(answer["logprobs"], count)}
            if top:
                sequence["teacher_topk"] = completion_topk(answer["topk"], count)
            sequences.append(sequence)
    return sequences


def schooled(tiny: Engine) -> TestRun:
    """A teacher with a taste for four tokens, and not too sure of it: a student must meet them by itself."""
    teacher, chooser = TestRun.create(tiny, "teacher", rank=8, alpha=16.0), random.Random(0)
    for _ in range(4):
        teacher.train([sft_datum(prompt, chooser.choices([7, 8, 9, 10], k=4)) for prompt in 4 * PROMPTS])
        teacher.step(1e-2)
    return teacher


@pytest.mark.parametrize("form", ["per token", "soft targets"])
def test_a_student_comes_near_its_teacher(tiny: Engine, form: str) -> None:
    student, teacher = TestRun.create(tiny, "student", rank=8, alpha=16.0), schooled(tiny)
    divergences = []
    for cycle in range(16):
        sequences = taught(student, teacher, cycle, top=20 if form == "soft targets" else 0)
        divergences.append(reverse_kl(sequences))
        build, loss = (
            (distillation_group, opd.LOSS_FUNCTION)
            if form == "per token"
            else (soft_target_group, opsd.SOFT_LOSS_FUNCTION)
        )
        student.train([datum for one in sequences for datum in build(one["prompt"], [one]).data], loss)
        student.step(2e-2, grad_clip_norm=1.0)
    assert sum(divergences[-3:]) < 0.25 * sum(divergences[:3])


def test_a_critic_learns_what_a_prompt_is_worth(tiny: Engine) -> None:
    policy, critic = TestRun.create(tiny, "policy"), TestRun.create(tiny, "critic", role="critic")
    worth = {place: float(place % 2) for place in range(len(PROMPTS))}
    sampler = policy.snapshot()
    errors = []
    for cycle in range(30):
        data: Data = []
        missed = []
        for place, prompt in enumerate(PROMPTS):
            payload = sampling(prompt, 1, max_tokens=4, seed=cycle)
            (sequence,) = policy.do("sample", payload, sampler_id=sampler)["sequences"]
            asked = ppo_critic.value_datum(prompt, sequence["tokens"])
            (answer,) = critic.score([asked], ppo_critic.CRITIC_LOSS)["loss_outputs"]
            sequence["values"] = at_trained(asked, answer["values"]["values"])
            missed.append(abs(worth[place] - sequence["values"][0]))
            data += ppo_critic.build(prompt, [sequence], [worth[place]]).critic
        errors.append(sum(missed) / len(missed))
        critic.train(data, ppo_critic.CRITIC_LOSS, value_clip=10.0)
        critic.step(2e-2)
    assert errors[0] == 0.5
    assert errors[-1] < 0.2


SEQUENCE = {
    "tokens": [5, 6, 7, 8],
    "logprobs": [-1.0] * 4,
    "teacher_logprobs": [-0.5] * 4,
    "teacher_topk": [[[9, -0.1], [5, -3.0]]] * 4,
    "values": [0.25] * 4,
    "stop_reason": "stop",
}
SAMPLE = {"sequences": [SEQUENCE | {"reward": 1.0}, SEQUENCE | {"reward": 0.0}, SEQUENCE | {"reward": 0.0}]}
BUILDERS = {
    "opd": opd.build_loss,
    "opsd": opsd.build_loss,
    "opsd top-K": opsd.build_soft_loss,
    "sdpo": sdpo.build_loss,
    "ttt": ttt.build_loss,
    "ppo_critic": ppo_critic.build_loss,
    "ppo_critic's critic": ppo_critic.build_critic_loss,
}
REFUSED = {("opsd top-K", "modal"), ("ppo_critic", "tinker"), ("ppo_critic's critic", "tinker")}


@pytest.mark.parametrize("provider", ["modal", "tinker", "local"])
@pytest.mark.parametrize("name", BUILDERS)
def test_what_is_built_for_a_provider_is_taken_by_it_or_refused_by_name_before(name: str, provider: Any) -> None:
    request, ctx = {"prompt": {"token_ids": [1, 2]}}, SimpleNamespace(provider=provider)
    if (name, provider) in REFUSED:
        with pytest.raises(ValueError, match=provider):
            BUILDERS[name](SAMPLE, 0, request, ctx)
        return
    payload = complete("forward_backward", BUILDERS[name](SAMPLE, 0, request, ctx))
    role = "critic" if name == "ppo_critic's critic" else "policy"
    check_operation(RULES[provider], role, "forward_backward", PAYLOADS["forward_backward"].model_validate(payload))
