"""forward and forward_backward on the tiny model: packing, reduction, outputs, and what can be wrong."""

import math
import re
from pathlib import Path

import pytest
import torch
from engine_harness import TestRun, datum, engine, floats, ints, rl_data, some_tokens, training

from gateway.providers.local import products
from gateway.providers.local.engine import Engine
from gateway.providers.local.options import EngineOptions
from gateway.providers.local.packing import pack_sequences


def test_sharing_prefixes_changes_neither_logprobs_nor_gradient(run: TestRun) -> None:
    prompt, other = some_tokens(1, 9), some_tokens(2, 5)
    data = [datum(prompt, some_tokens(seed, 4)) for seed in (3, 4)]
    data += [datum(prompt, [*some_tokens(3, 4), 9]), datum(prompt[:4], some_tokens(6, 7)), datum(other, [7, 8])]
    data.append(data[0])
    together = run.train(data)
    shared = run.gradient.flat.clone()
    run.step(0.0)
    run.engine._options = EngineOptions(micro_batch_tokens=1)  # so small that every sequence passes alone
    apart = [run.train([one]) for one in data]
    for joint, alone in zip(together["loss_outputs"], apart, strict=True):
        assert joint["logprobs"]["values"] == pytest.approx(alone["loss_outputs"][0]["logprobs"]["values"], abs=1e-5)
    torch.testing.assert_close(shared, run.gradient.flat, rtol=1e-3, atol=1e-4)


def test_a_shared_prefix_is_laid_out_once() -> None:
    prompt = list(range(40))
    sequences = [[*prompt, 50 + index, 60] for index in range(8)]
    (pack,) = pack_sequences(sequences, max_tokens=1000, break_even=1000)
    assert len(pack.tokens) == 40 + 8 * 2
    for number, sequence in enumerate(sequences):
        assert pack.tokens[pack.paths[number]].tolist() == sequence
        assert pack.positions[pack.paths[number]].tolist() == list(range(42))


def test_a_token_sees_its_own_prefix_and_nothing_else() -> None:
    sequences = [[1, 2, 3, 4], [1, 2, 3, 5], [1, 2, 6], [1, 2]]
    (pack,) = pack_sequences(sequences, max_tokens=100, break_even=1000)
    (mask,) = pack.masks
    assert mask is not None
    for sequence, path in zip(sequences, (pack.paths[number] for number in range(4)), strict=True):
        seen = (mask[0, 0, path[-1]] == 0).nonzero()[:, 0]
        assert pack.tokens[seen].tolist() == sequence


def test_sharing_that_costs_more_attention_than_it_saves_is_not_done() -> None:
    sequences = [[1, *some_tokens(seed, 60)] for seed in range(4)]
    (pack,) = pack_sequences(sequences, max_tokens=1000, break_even=100)
    assert pack.lengths == [61] * 4
    assert pack.masks == [None] * 4


def test_a_pack_never_exceeds_its_budget_unless_one_sequence_does() -> None:
    sequences = [some_tokens(seed, 30) for seed in range(7)] + [some_tokens(8, 90)]
    packs = pack_sequences(sequences, max_tokens=64, break_even=100)
    assert sorted(len(pack.tokens) for pack in packs) == [30, 60, 60, 60, 90]
    assert sorted(number for pack in packs for number in pack.paths) == list(range(8))


def test_the_mean_reduction_divides_by_the_requests_trained_tokens(tiny: Engine) -> None:
    data = [datum(some_tokens(1, 5), some_tokens(2, 6)), datum(some_tokens(3, 5), some_tokens(4, 4))]
    plain, mean = TestRun.create(tiny, "sum"), TestRun.create(tiny, "mean", reduction="mean")
    total, averaged = plain.train(data)["metrics"]["loss"], mean.train(data)["metrics"]["loss"]
    assert averaged == pytest.approx(total / 10)
    torch.testing.assert_close(mean.gradient.flat, plain.gradient.flat / 10)


def test_soft_targets_are_a_weighted_sum_of_hard_ones(run: TestRun) -> None:
    prompt, completion, others = some_tokens(1, 4), some_tokens(2, 3), some_tokens(3, 3)
    hard = [datum(prompt, completion, weights=[0.25] * 3), datum(prompt, completion, weights=[0.75] * 3)]
    hard[1]["loss_inputs"]["target_tokens"] = ints([0] * 3 + others)
    expected = run.train(hard)
    gradient = run.gradient.flat.clone()
    run.step(0.0)
    soft = datum(prompt, completion)
    pairs = [token for pair in zip(completion, others, strict=True) for token in pair]
    soft["loss_inputs"] = {
        "target_tokens": ints([0] * 6 + pairs, [6, 2]),
        "weights": floats([0.0] * 6 + [0.25, 0.75] * 3, [6, 2]),
    }
    answer = run.train([soft])
    assert answer["metrics"]["loss"] == pytest.approx(expected["metrics"]["loss"])
    assert answer["metrics"]["tokens"] == 3
    assert answer["loss_outputs"][0]["logprobs"]["shape"] == [6, 2]
    torch.testing.assert_close(run.gradient.flat, gradient, rtol=1e-3, atol=1e-5)


def test_logprobs_come_back_at_the_datums_length_with_zeros_where_nothing_is_trained(run: TestRun) -> None:
    prompt, completion = some_tokens(1, 5), some_tokens(2, 4)
    one = datum(prompt, completion, weights=[0.0, 1.0, 1.0, 0.0])
    (output,) = run.score([one])["loss_outputs"]
    values = output["logprobs"]["values"]
    assert output["logprobs"]["shape"] == [8]
    assert [index for index, value in enumerate(values) if value != 0] == [5, 6]
    assert values[5:7] == pytest.approx(run.logprobs(prompt + completion)[5:7], abs=1e-5)


def test_a_request_without_a_trained_token_has_no_loss_and_a_zero_gradient(run: TestRun) -> None:
    answer = run.train([datum([5, 6], [7, 8], weights=[0.0, 0.0])])
    assert answer["metrics"]["loss"] == 0
    assert answer["loss_outputs"][0]["logprobs"]["values"] == [0, 0, 0]
    assert not run.gradient.flat.any()


def test_forward_gathers_no_gradient(run: TestRun) -> None:
    run.score(rl_data(), "ppo")
    assert run.error("optim_step", {"optimizer": {"learning_rate": 1e-3}})[0] == "no_gradient"


def test_on_policy_data_has_ratio_one_and_no_divergence(run: TestRun) -> None:
    prompt, completion = some_tokens(1, 5), some_tokens(2, 6)
    own = run.logprobs(prompt + completion)[-6:]
    metrics = run.train([datum(prompt, completion, logprobs=own, advantages=[1.0] * 6)], "ppo")["metrics"]
    assert metrics["ratio_mean"] == pytest.approx(1, abs=1e-4)
    assert metrics["ratio_max"] == pytest.approx(1, abs=1e-4)
    assert metrics["clip_fraction"] == 0
    assert abs(metrics["kl_sampler_trainer_k1"]) < 1e-4
    assert abs(metrics["kl_sampler_trainer_k3"]) < 1e-6
    assert 0 < metrics["entropy"] < math.log(64)


def test_the_entropy_is_that_of_the_models_distribution(run: TestRun) -> None:
    prompt = some_tokens(1, 5)
    metrics = run.score([datum(prompt, [7])])["metrics"]
    top = run.do("logprobs", {"input": {"token_ids": [*prompt, 7]}, "topk": 64}, sampler_id=run.snapshot())["topk"]
    assert metrics["entropy"] == pytest.approx(-sum(math.exp(lp) * lp for _, lp in top[-1]), abs=1e-5)


def test_a_loss_that_overflows_fails_and_leaves_what_was_gathered(run: TestRun) -> None:
    run.train(rl_data(), "ppo")
    before = run.gradient.flat.clone()
    wild = datum([5, 6], [7], logprobs=[-3000.0], advantages=[1.0])
    code, message = run.error("forward_backward", training([*rl_data(1), wild], "importance_sampling"))
    assert code == "non_finite"
    assert "importance_sampling" in message
    assert torch.equal(run.gradient.flat, before)


def test_adamw_takes_the_step_that_torch_takes(run: TestRun) -> None:
    reference = torch.nn.Parameter(run.parameters.flat.clone())
    theirs = torch.optim.AdamW([reference], lr=3e-3, betas=(0.8, 0.9), eps=1e-6, weight_decay=0.1)
    for seed in range(3):
        run.train(rl_data(seed), "importance_sampling")
        reference.grad = run.gradient.flat.clone()
        norm = float(torch.nn.utils.clip_grad_norm_([reference], 0.5))
        theirs.step()
        metrics = run.step(3e-3, beta1=0.8, beta2=0.9, eps=1e-6, weight_decay=0.1, grad_clip_norm=0.5)
        assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
        assert metrics["step"] == seed + 1
    torch.testing.assert_close(run.parameters.flat, reference.detach(), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("limit", [None, 0])
def test_a_clip_norm_of_nothing_does_not_clip(run: TestRun, limit: float | None) -> None:
    before = run.parameters.flat.clone()
    run.train(rl_data(), "importance_sampling")
    gradient = run.gradient.flat.clone()
    run.step(1.0, beta1=0.0, beta2=0.0, eps=1e6, grad_clip_norm=limit)
    torch.testing.assert_close(run.parameters.flat, before - gradient / (gradient.abs() + 1e6), rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize(
    ("field", "tokens", "complaint"),
    [
        ("target_tokens", [6, 7, 8, 64], "outside the vocabulary of 64"),
        ("input", [5, 6, 99, 8], r"data\[1\].input.token_ids\[2\] is not in the model's vocabulary of 64"),
    ],
)
def test_tokens_that_are_not_the_models_are_refused_by_their_place(
    run: TestRun, field: str, tokens: list[int], complaint: str
) -> None:
    broken = datum([5, 6, 7], [8, 9], logprobs=[-1.0, -1.0], advantages=[1.0, 1.0])
    if field == "input":
        broken["input"]["token_ids"] = tokens
    else:
        broken["loss_inputs"][field] = ints(tokens)
    code, message = run.error("forward_backward", training([rl_data()[0], broken], "ppo"))
    assert code == "invalid_input"
    assert re.search(complaint, message), message


def test_a_datum_longer_than_the_context_is_refused_with_both_lengths(run: TestRun) -> None:
    code, message = run.error("forward", training([datum(some_tokens(1, 500), some_tokens(2, 20))]))
    assert code == "context_exceeded"
    assert "519 tokens, the model's context holds 512" in message


def test_training_is_billed_by_the_tokens_submitted(run: TestRun) -> None:
    data = [datum(some_tokens(1, 5), [7, 8])] * 3
    assert run.outcome("forward_backward", training(data)).usage.trained_tokens == 18
    assert run.outcome("forward", training(data)).usage.prefill_tokens == 18


def test_two_runs_of_one_model_share_its_base_and_nothing_else(tmp_path: Path) -> None:
    shared = engine(tmp_path)
    one, other = TestRun.create(shared, "one"), TestRun.create(shared, "other")
    assert shared._runs["one"].base is shared._runs["other"].base
    before = other.logprobs(some_tokens(1, 6))
    one.train(rl_data(), "ppo")
    one.step(0.1)
    assert other.logprobs(some_tokens(1, 6)) == before
    assert one.logprobs(some_tokens(1, 6)) != before


@pytest.mark.parametrize("rows", [1, 7, 300])
def test_both_kernels_of_a_product_agree(rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = torch.Generator().manual_seed(rows)
    inputs, weight = torch.randn(rows, 96, generator=generator), torch.randn(50, 96, generator=generator)
    usual = products.product(inputs, weight)
    monkeypatch.setattr(products, "_ONEDNN", None)  # as on a machine without oneDNN
    torch.testing.assert_close(usual, products.product(inputs, weight), rtol=1e-5, atol=1e-5)
