"""A critic on the tiny model: a value head beside the LoRA matrices, trained, saved and exported with them."""

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import TestRun, datum, engine, ints, rl_data, some_tokens, training
from safetensors.torch import load_file

from gateway.losses import LOSS_KEYS
from gateway.providers.local.engine import Engine
from gateway.providers.local.errors import EngineError
from gateway.providers.local.options import EngineOptions


@pytest.fixture
def critic(tiny: Engine) -> TestRun:
    """A critic that has been trained a little, so that B and head are not zero."""
    made = TestRun.create(tiny, "critic", role="critic")
    for seed in range(3):
        made.train(critic_data(seed), "ppo_critic", value_clip=10.0)
        made.step(0.05)
    return made


def critic_data(seed: int = 0, count: int = 4) -> list[dict[str, Any]]:
    chooser = np.random.default_rng(seed)
    data = []
    for number in range(count):
        length = int(chooser.integers(2, 6))
        values, returns = chooser.normal(0, 0.5, length).tolist(), chooser.normal(1, 1, length).tolist()
        data.append(
            datum(some_tokens(number // 2, 6), some_tokens(100 * seed + number, length), values=values, returns=returns)
        )
    return data


def values_of(run: TestRun, data: list[dict[str, Any]]) -> list[list[float]]:
    return [output["values"]["values"] for output in run.score(data, "ppo_critic")["loss_outputs"]]


def test_a_new_critic_values_every_state_at_zero(tiny: Engine) -> None:
    new = TestRun.create(tiny, role="critic")
    assert all(value == 0 for row in values_of(new, critic_data()) for value in row)
    metrics = new.score(critic_data(), "ppo_critic")["metrics"]
    assert (metrics["value_mean"], metrics["explained_variance"]) == (0, 0)


def test_a_value_reads_the_tokens_before_its_target_and_not_the_target(critic: TestRun) -> None:
    one = datum(some_tokens(1, 5), [7, 8, 9], values=[0.0] * 3, returns=[1.0] * 3)
    other_end = datum(some_tokens(1, 5), [7, 8, 33], values=[0.0] * 3, returns=[1.0] * 3)
    other_middle = datum(some_tokens(1, 5), [7, 33, 9], values=[0.0] * 3, returns=[1.0] * 3)
    (mine,), (end,), (middle,) = (values_of(critic, [given]) for given in (one, other_end, other_middle))
    assert mine[:4] == [0, 0, 0, 0]
    assert end[4:] == pytest.approx(mine[4:], abs=1e-6)
    assert middle[4:6] == pytest.approx(mine[4:6], abs=1e-6)
    assert abs(middle[6] - mine[6]) > 1e-4


def test_target_tokens_may_be_left_out_and_change_no_value(critic: TestRun) -> None:
    with_targets, without, others = critic_data(), critic_data(), critic_data()
    for given, changed in zip(without, others, strict=True):
        del given["loss_inputs"]["target_tokens"]
        changed["loss_inputs"]["target_tokens"] = ints([1] * len(changed["input"]["token_ids"]))
    assert values_of(critic, with_targets) == values_of(critic, without) == values_of(critic, others)


def test_outputs_are_values_of_the_inputs_length_and_no_logprobs(critic: TestRun) -> None:
    (one, *_) = critic_data()
    (output, *_) = critic.train([one], "ppo_critic")["loss_outputs"]
    assert output.keys() == {"values"}
    assert output["values"]["shape"] == [len(one["input"]["token_ids"])]


def test_the_metrics_are_those_of_the_trained_tokens(critic: TestRun) -> None:
    data = critic_data(9)
    answer = critic.score(data, "ppo_critic", value_clip=0.1)
    rows = [np.array(output["values"]["values"]) for output in answer["loss_outputs"]]
    given = {
        name: [np.array(one["loss_inputs"][name]["values"]) for one in data]
        for name in ("weights", "values", "returns")
    }
    trained = np.concatenate(given["weights"]) != 0
    now, old, returns = (np.concatenate(part)[trained] for part in (rows, given["values"], given["returns"]))
    held = old + np.clip(now - old, -0.1, 0.1)
    metrics = answer["metrics"]
    assert metrics["tokens"] == trained.sum()
    assert metrics["value_mean"] == pytest.approx(now.mean(), rel=1e-5)
    assert metrics["explained_variance"] == pytest.approx(1 - (returns - now).var() / returns.var(), rel=1e-5)
    clipped = (held - returns) ** 2 > (now - returns) ** 2
    assert metrics["clip_fraction"] == pytest.approx(clipped.mean())
    assert 0 < clipped.mean() < 1


def test_small_packs_change_neither_values_nor_metrics_nor_gradient(critic: TestRun) -> None:
    data = critic_data(4, count=6)
    together = critic.train(data, "ppo_critic")
    shared = critic.gradient.flat.clone()
    critic.engine._runs[critic.name].state.gradient = None
    critic.engine._options = EngineOptions(micro_batch_tokens=1)  # so small that every sequence passes alone
    apart = critic.train(data, "ppo_critic")
    assert apart["metrics"] == pytest.approx(together["metrics"], rel=1e-4)
    for one, other in zip(together["loss_outputs"], apart["loss_outputs"], strict=True):
        assert one["values"]["values"] == pytest.approx(other["values"]["values"], abs=1e-5)
    assert float((critic.gradient.flat - shared).norm()) < 1e-4 * float(shared.norm())


def test_the_mean_reduction_divides_by_the_requests_trained_tokens(tiny: Engine) -> None:
    plain = TestRun.create(tiny, "sum", role="critic")
    mean = TestRun.create(tiny, "mean", role="critic", reduction="mean")
    data = critic_data()
    total, averaged = (one.train(data, "ppo_critic")["metrics"] for one in (plain, mean))
    assert averaged["loss"] == pytest.approx(total["loss"] / total["tokens"])
    torch.testing.assert_close(mean.gradient.flat, plain.gradient.flat / total["tokens"])


def test_returns_that_are_all_equal_leave_no_variance_to_explain(critic: TestRun) -> None:
    data = [datum(some_tokens(1, 5), [7, 8], values=[0.0, 0.0], returns=[1.0, 1.0])]
    assert critic.score(data, "ppo_critic")["metrics"]["explained_variance"] == 0


def test_a_critic_learns_its_returns(tiny: Engine) -> None:
    run = TestRun.create(tiny, role="critic")
    data = critic_data(5)[::2]  # no two with one prompt: of one state, two returns cannot both be right
    for _ in range(60):
        run.train(data, "ppo_critic", value_clip=100.0)
        run.step(0.03)
    assert run.score(data, "ppo_critic")["metrics"]["explained_variance"] > 0.9


def test_a_critic_resumes_bit_for_bit_with_its_head_and_its_moments(critic: TestRun, tmp_path: Path) -> None:
    critic.train(critic_data(7), "ppo_critic")
    critic.do("save_state", output=tmp_path / "state.safetensors")
    resumed = TestRun.create(engine(tmp_path), "resumed", role="critic", initial=tmp_path / "state.safetensors")
    assert torch.equal(resumed.parameters.flat, critic.parameters.flat)
    assert resumed.parameters.value_weight.any()
    for one in (critic, resumed):
        one.train(critic_data(8), "ppo_critic")
    assert critic.step(0.02) == resumed.step(0.02)
    assert torch.equal(resumed.parameters.flat, critic.parameters.flat)


def test_an_exported_critic_is_an_adapter_with_its_head_beside_it(critic: TestRun, tmp_path: Path) -> None:
    critic.do("export_lora", output=tmp_path / "critic.tar.gz")
    with tarfile.open(tmp_path / "critic.tar.gz") as archive:
        archive.extractall(tmp_path / "critic", filter="data")
    head = load_file(tmp_path / "critic" / "value_head.safetensors")
    assert {name: list(tensor.shape) for name, tensor in head.items()} == {"weight": [1, 64], "bias": [1]}
    assert torch.equal(head["weight"], critic.parameters.value_weight)
    again = TestRun.create(critic.engine, "again", role="critic", initial=tmp_path / "critic.tar.gz")
    assert values_of(again, critic_data()) == values_of(critic, critic_data())


def test_a_critic_may_start_from_a_policys_adapter_and_has_a_new_head(run: TestRun, tmp_path: Path) -> None:
    run.do("export_lora", output=tmp_path / "policy.tar.gz")
    made = TestRun.create(run.engine, "critic", role="critic", initial=tmp_path / "policy.tar.gz")
    assert torch.equal(made.parameters.flat[: len(run.parameters.flat)], run.parameters.flat)
    assert not made.parameters.value_weight.any()
    assert not made.parameters.value_bias.any()


@pytest.mark.parametrize(("kind", "suffix"), [("save_state", "safetensors"), ("export_lora", "tar.gz")])
def test_a_policy_does_not_start_from_a_critic(critic: TestRun, tmp_path: Path, kind: str, suffix: str) -> None:
    critic.do(kind, output=tmp_path / f"critic.{suffix}")
    with pytest.raises(EngineError, match="a critic's, the run asks for the role policy"):
        TestRun.create(critic.engine, "policy", initial=tmp_path / f"critic.{suffix}")


def test_a_critic_does_not_resume_a_policys_state(run: TestRun, tmp_path: Path) -> None:
    run.do("save_state", output=tmp_path / "policy.safetensors")
    with pytest.raises(EngineError, match="a policy's, the run asks for the role critic"):
        TestRun.create(run.engine, "critic", role="critic", initial=tmp_path / "policy.safetensors")


@pytest.mark.parametrize("loss", sorted(LOSS_KEYS.keys() - {"ppo_critic"}))
def test_a_critic_is_not_trained_by_a_policys_loss(critic: TestRun, loss: str) -> None:
    assert critic.error("forward_backward", training(rl_data(), loss))[0] == "wrong_role"


def test_a_policy_is_not_trained_by_the_critics_loss_and_a_critic_has_no_sampler(run: TestRun, critic: TestRun) -> None:
    assert run.error("forward_backward", training(critic_data(), "ppo_critic"))[0] == "wrong_role"
    assert critic.error("save_weights_for_sampler", sampler_id="s")[0] == "wrong_role"


def test_a_critic_trains_beside_a_policy_and_neither_moves_the_other(run: TestRun) -> None:
    beside = TestRun.create(run.engine, "critic", role="critic")
    policy_before = run.logprobs(some_tokens(1, 6))
    beside.train(critic_data(), "ppo_critic")
    beside.step(0.1)
    assert run.logprobs(some_tokens(1, 6)) == policy_before
    values = values_of(beside, critic_data())
    run.train(rl_data(), "ppo")
    run.step(0.1)
    assert values_of(beside, critic_data()) == values


def test_a_value_error_that_overflows_fails_and_leaves_what_was_gathered(critic: TestRun) -> None:
    critic.train(critic_data(), "ppo_critic")
    before = critic.gradient.flat.clone()
    wild = datum([5, 6], [7], values=[0.0], returns=[3e38], weights=[3e38])
    assert critic.error("forward_backward", training([wild], "ppo_critic"))[0] == "non_finite"
    assert torch.equal(critic.gradient.flat, before)
