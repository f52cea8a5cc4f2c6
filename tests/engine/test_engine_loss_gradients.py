"""Every loss, through the real network: its value and its gradient beside an independent implementation's.

Both signs of the advantage, every clip at work and idle, several datums that share prompts.
"""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from engine_harness import TestRun, datum, engine, floats, ints, some_tokens
from reference_losses import CONFIGS, REFERENCES, Array, Tokens, gradient, value

from gateway.providers.local.lora import LINEARS, LoraTensors
from gateway.providers.local.losses import DPPO_VARIANTS, LOSSES

Data = list[dict[str, Any]]
LENGTH = 3
PROMPT_LENGTH = 6
# By datum: how far the policy has moved since the rollout, and the advantage's sign; every pair of the two.
MOVES = [(move, sign) for sign in (1.0, -1.0) for move in (-0.6, -0.1, 0.1, 0.6)]
CLIPS = ["cispo", "dppo binary_kl", "dppo binary_tv", "gspo", "ppo", "ppo_critic"]
POLICY = sorted(REFERENCES.keys() - {"ppo_critic"})


class Case:
    """One loss on a run whose B (and head) are not zero, with data made around what that run says today."""

    def __init__(self, name: str, folder: Path) -> None:
        self.name, self.critic = name, name == "ppo_critic"
        self.loss, self.config = name.split(maxsplit=1)[0], CONFIGS.get(name, {})
        variant = {"dppo_variant": name.split(maxsplit=1)[1]} if self.loss == "dppo" else {}
        self.run = TestRun.create(engine(folder, **variant), role="critic" if self.critic else "policy")
        generator = torch.Generator().manual_seed(5)
        for part, matrix in self.run.parameters.named():
            if part.endswith(".B") or part.startswith("value_head"):
                matrix.copy_(torch.randn(matrix.shape, generator=generator) * 0.1)
        self.run.weights_changed()
        self.data = self._data()

    def _data(self) -> Data:
        chooser = np.random.default_rng(3)
        self.data = [self._datum(number, np.zeros(LENGTH), 1.0, chooser) for number in range(len(MOVES))]
        now = self.numbers().reshape(len(MOVES), LENGTH, -1)[:, :, 0]
        return [
            self._datum(number, now[number] - move + chooser.normal(0, 0.01, LENGTH), sign, chooser)
            for number, (move, sign) in enumerate(MOVES)
        ]

    def _datum(self, number: int, before: Array, sign: float, chooser: np.random.Generator) -> dict[str, Any]:
        prompt, completion = some_tokens(number % 2, PROMPT_LENGTH), some_tokens(50 + number, LENGTH)
        weights = chooser.choice([0.5, 1.0, 2.0], LENGTH).tolist()
        if self.name == "cross_entropy soft":
            return _soft(datum(prompt, completion), chooser)
        if self.loss == "cross_entropy":
            return datum(prompt, completion, weights=weights)
        if self.critic:
            returns = (before + sign * chooser.uniform(0.5, 1.5, LENGTH)).tolist()
            return datum(prompt, completion, weights=weights, values=before.tolist(), returns=returns)
        advantages = (sign * chooser.uniform(0.5, 1.5, LENGTH)).tolist()
        return datum(prompt, completion, weights=weights, logprobs=before.tolist(), advantages=advantages)

    def train(self, data: Data | None = None) -> dict[str, Any]:
        return self.run.train(self.data if data is None else data, self.loss, **self.config)

    def answer(self) -> dict[str, Any]:
        return self.run.score(self.data, self.loss, **self.config)

    def numbers(self) -> Array:
        """The run's log-probs (or values) of the trained (position, target) pairs now, [n]."""
        output = "values" if self.critic else "logprobs"
        found = [one[output]["values"] for one in self.answer()["loss_outputs"]]
        return np.concatenate([np.array(row)[self._trained(one)] for row, one in zip(found, self.data, strict=True)])

    def tokens(self) -> Tokens:
        """What the data say of the same pairs."""
        names = self.data[0]["loss_inputs"].keys() - {"target_tokens"}
        arrays = {
            name: np.concatenate(
                [np.array(one["loss_inputs"][name]["values"])[self._trained(one)] for one in self.data]
            )
            for name in names
        }
        counts = [int(self._trained(one).sum()) for one in self.data]
        # As the engine reads them: float32 on the wire.
        arrays = {name: np.float32(array).astype(np.float64) for name, array in arrays.items()}
        return Tokens(arrays.pop("weights"), np.repeat(np.arange(len(counts)), counts), arrays)

    def flat_gradient(self, *requests: Data) -> torch.Tensor:
        """The LoRA (and head) gradient of these requests together; the weights stay."""
        for data in requests:
            self.train(data)
        found = self.run.gradient.flat.clone()
        self.run.engine._runs[self.run.name].state.gradient = None
        return found

    def _trained(self, one: dict[str, Any]) -> Any:
        return np.array(one["loss_inputs"]["weights"]["values"]) != 0


def _soft(hard: dict[str, Any], chooser: np.random.Generator) -> dict[str, Any]:
    """The datum with three targets a position."""
    length = len(hard["input"]["token_ids"])
    targets = chooser.integers(3, 64, (length, 3))
    weights = chooser.uniform(0.1, 1.0, (length, 3)) * (np.arange(length) >= length - LENGTH)[:, None]
    hard["loss_inputs"] = {
        "target_tokens": ints(targets.flatten().tolist(), [length, 3]),
        "weights": floats(weights.flatten().tolist(), [length, 3]),
    }
    return hard


@pytest.fixture(params=sorted(REFERENCES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Case:
    return Case(request.param, tmp_path)


def test_no_loss_of_the_engine_is_left_out() -> None:
    variants = {f"dppo {variant}" for variant in DPPO_VARIANTS}
    assert REFERENCES.keys() == (LOSSES.keys() - {"dppo"}) | variants | {"cross_entropy soft", "ppo_critic"}


def test_the_value_is_the_references(case: Case) -> None:
    expected = value(case.name, case.numbers(), case.tokens()).sum()
    assert case.answer()["metrics"]["loss"] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_the_gradient_is_the_finite_difference_of_the_reference_through_the_network(case: Case) -> None:
    tokens, held = case.tokens(), case.numbers()

    def loss() -> float:
        return float(REFERENCES[case.name](case.numbers(), held, tokens, case.config).sum())

    case.train()
    check_slopes(case.run, loss)


@pytest.mark.parametrize("name", POLICY)
def test_the_gradient_is_that_of_cross_entropy_weighted_by_the_references_derivative(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    weights = iter((-gradient(name, case.numbers(), case.tokens())).tolist())
    plain = copy.deepcopy(case.data)
    for one in plain:
        inputs = one["loss_inputs"]
        rows = [next(weights) if old else 0.0 for old in inputs["weights"]["values"]]
        one["loss_inputs"] = {"target_tokens": inputs["target_tokens"], "weights": inputs["weights"] | {"values": rows}}
    found = case.flat_gradient(case.data)
    case.loss, case.config = "cross_entropy", {}
    assert_alike(case.flat_gradient(plain), found)


@pytest.mark.parametrize("name", CLIPS)
def test_the_data_lie_on_both_sides_of_every_clip_for_both_signs(name: str, tmp_path: Path) -> None:
    case = Case(name, tmp_path)
    tokens, now = case.tokens(), case.numbers()
    if name == "ppo_critic":
        signs = np.sign(tokens.inputs["returns"] - tokens.inputs["values"])
    else:
        signs = np.sign(tokens.advantages)
    if name == "cispo":  # it holds its coefficient, never its gradient
        ratio = np.exp(now - tokens.sampled)
        clipped = (ratio < 0.8) | (ratio > 1.2)
    else:
        clipped = gradient(name, now, tokens) == 0
    assert {(sign, bool(at_work)) for sign, at_work in zip(signs, clipped, strict=True)} == {
        (sign, at_work) for sign in (1.0, -1.0) for at_work in (True, False)
    }
    assert case.answer()["metrics"]["clip_fraction"] == pytest.approx(clipped.mean())


def test_two_requests_have_the_gradient_of_one(case: Case) -> None:
    together = case.flat_gradient(case.data)
    assert together.any()
    assert_alike(case.flat_gradient(case.data[:3], case.data[3:]), together)


def test_what_stands_at_prompt_positions_changes_no_bit_of_the_gradient(case: Case) -> None:
    before = case.flat_gradient(case.data)
    changed = copy.deepcopy(case.data)
    for one in changed:
        inputs = one["loss_inputs"]
        numbers = inputs["weights"]["values"]  # with soft targets several a position
        count = (PROMPT_LENGTH - 1) * len(numbers) // len(one["input"]["token_ids"])
        assert not any(numbers[:count])
        for name in inputs.keys() - {"weights", "target_tokens"}:
            inputs[name]["values"][:count] = [-7.5] * count
        inputs["target_tokens"]["values"][:count] = [9] * count
    assert torch.equal(case.flat_gradient(changed), before)


def assert_alike(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for fp32 rounding, measured on the whole vector: some of its entries are differences of large ones."""
    assert float((found - expected).norm()) < 1e-4 * float(expected.norm())


def check_slopes(run: TestRun, loss: Any, width: float = 2e-3) -> None:
    """Central differences along the gradient's part of each kind of matrix: each one must be right."""
    start, gathered = run.parameters.flat.clone(), run.gradient
    kinds = [f"{linear}.{side}" for linear in LINEARS for side in "AB"]
    kinds += ["value_head.weight", "value_head.bias"] if run.parameters.layout.value_head else []
    for kind in kinds:
        direction = torch.zeros_like(start)
        parts = LoraTensors(run.parameters.layout, direction).named()
        for (name, view), (_, part) in zip(parts, gathered.named(), strict=True):
            if name.endswith(kind):
                view.copy_(part)
        norm = float(direction.norm())
        assert norm > 0, kind
        values = []
        for sign in (1, -1):
            run.parameters.flat.copy_(start + sign * width * direction / norm)
            run.weights_changed()
            values.append(loss())
        assert (values[0] - values[1]) / (2 * width) == pytest.approx(norm, rel=2e-2, abs=2e-3), kind
    run.parameters.flat.copy_(start)
    run.weights_changed()
