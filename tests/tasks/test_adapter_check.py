"""What is wrong with an exported adapter is said by file, setting and tensor; what is right passes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from adapters import ALPHA, LINEARS, RANK, Tensors, expected, key, write_adapter

from models.adapter import CONFIG_FILE, WEIGHTS_FILE
from tasks.adapter import AdapterError, check_adapter

Q0, UP1 = "model.layers.0.self_attn.q_proj", "model.layers.1.mlp.up_proj"


def test_a_whole_adapter_passes_and_is_described(tmp_path: Path) -> None:
    facts = check_adapter(write_adapter(tmp_path), expected())
    assert (facts.rank, facts.alpha, facts.modules, facts.dtypes) == (RANK, ALPHA, 14, ["F32"])
    assert facts.target_modules == LINEARS
    assert facts.parameters == 8192
    assert facts.trained
    assert facts.unchecked == []


def drop(*names: str) -> Callable[[Tensors], None]:
    return lambda tensors: [tensors.pop(name) for name in names] and None


def put(name: str, change: Callable[[Any], Any]) -> Callable[[Tensors], None]:
    return lambda tensors: tensors.update({name: change(tensors.get(name))})


def with_nan(tensor: Any) -> Any:
    return np.where(np.arange(tensor.size).reshape(tensor.shape) == 3, np.nan, tensor)


FAULTS: dict[str, tuple[Callable[[Tensors], None], str]] = {
    "a NaN": (
        put(key(Q0, "B"), with_nan),
        rf"{key(Q0, 'B')} has 1 of 256 numbers that are NaN or infinite",
    ),
    "a missing B": (drop(key(UP1, "B")), f"{WEIGHTS_FILE} has no lora_B of {UP1}"),
    "a missing pair": (drop(key(UP1, "A"), key(UP1, "B")), f"has nothing for {UP1}, which is a target module"),
    "another shape": (
        put(key(Q0, "A"), lambda tensor: tensor[:, :-1].copy()),
        rf"{key(Q0, 'A')} has shape \[4, 63\], must have \[4, 64\]",
    ),
    "another rank": (put(key(Q0, "A"), lambda tensor: tensor[:-1].copy()), r"has shape \[3, 64\], must have \[4, 64\]"),
    "a layer too many": (
        put(key("model.layers.2.mlp.up_proj", "A"), lambda _: np.ones((4, 64), np.float32)),
        "adapts model.layers.2.mlp.up_proj, which the model 'tiny' does not have",
    ),
    "a module that is no target": (
        put(key("lm_head", "A"), lambda _: np.ones((4, 64), np.float32)),
        "adapts lm_head, which is no target module",
    ),
    "a tensor of another kind": (
        put("base_model.model.lm_head.weight", lambda _: np.ones((2, 2), np.float32)),
        "has base_model.model.lm_head.weight, which is no LoRA matrix",
    ),
    "whole numbers": (put(key(Q0, "A"), lambda tensor: tensor.astype(np.int32)), f"{key(Q0, 'A')} is of type I32"),
    "nothing at all": (lambda tensors: tensors.clear(), "holds no LoRA matrix"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_in_the_weights_is_refused_by_the_tensors_name(fault: str, tmp_path: Path) -> None:
    change, message = FAULTS[fault]
    with pytest.raises(AdapterError, match=message):
        check_adapter(write_adapter(tmp_path, tensors=change), expected())


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"r": 8}, "has r = 8, the run has 4"),
        ({"lora_alpha": 4}, "has lora_alpha = 4, the run has 8.0"),
        ({"peft_type": "IA3"}, "has peft_type = 'IA3', the run has 'LORA'"),
        ({"base_model_name_or_path": "org/big"}, "has base_model_name_or_path = 'org/big', the run trained 'tiny'"),
        ({"target_modules": []}, "names no target_modules"),
    ],
    ids=["rank", "alpha", "kind", "base", "targets"],
)
def test_another_runs_configuration_is_refused_by_the_setting(
    config: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(AdapterError, match=f"{CONFIG_FILE} {message}"):
        check_adapter(write_adapter(tmp_path, config=config), expected())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (WEIGHTS_FILE, None, f"{WEIGHTS_FILE} cannot be read as safetensors: .*not.* found|No such file"),
        (WEIGHTS_FILE, -7, f"{WEIGHTS_FILE} cannot be read as safetensors"),
        (WEIGHTS_FILE, 4, f"{WEIGHTS_FILE} cannot be read as safetensors"),
        (CONFIG_FILE, None, f"{CONFIG_FILE} is missing"),
        (CONFIG_FILE, 20, f"{CONFIG_FILE} cannot be read as JSON"),
    ],
    ids=["no weights", "weights cut short", "four bytes of weights", "no configuration", "configuration cut short"],
)
def test_a_file_that_is_missing_or_cut_short_is_named(
    name: str, content: int | None, message: str, tmp_path: Path
) -> None:
    adapter = write_adapter(tmp_path)
    file = tmp_path / name
    whole = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(whole[:content])
    with pytest.raises(AdapterError, match=message):
        check_adapter(adapter, expected())


def test_many_faults_are_counted_and_the_first_are_named(tmp_path: Path) -> None:
    def no_b(tensors: Tensors) -> None:
        for name in [name for name in tensors if "lora_B" in name]:
            del tensors[name]

    with pytest.raises(AdapterError, match=r"(has no lora_B.*){5}; and 9 more$"):
        check_adapter(write_adapter(tmp_path, tensors=no_b), expected())


def test_an_adapter_that_changes_nothing_is_no_error_and_is_told_apart(tmp_path: Path) -> None:
    def untrained(tensors: Tensors) -> None:
        for name in tensors:
            if "lora_B" in name:
                tensors[name][:] = 0

    assert not check_adapter(write_adapter(tmp_path, tensors=untrained), expected()).trained


def test_without_the_base_model_it_is_said_what_was_not_checked(tmp_path: Path) -> None:
    hosted = expected(model="Org/Big-8B", base=None)
    facts = check_adapter(write_adapter(tmp_path, config={"base_model_name_or_path": "big"}), hosted)
    assert "Org/Big-8B is not on the machine" in facts.unchecked[0]
    assert "whether 'big'" in facts.unchecked[1]
    with pytest.raises(AdapterError, match=r"has shape \[3, 64\], and the run's rank is 4"):
        check_adapter(write_adapter(tmp_path, tensors=put(key(Q0, "A"), lambda tensor: tensor[:-1].copy())), hosted)
    experts = key("model.layers.0.mlp.experts.up_proj", "A")
    check_adapter(
        write_adapter(
            tmp_path,
            tensors=lambda tensors: tensors.update(
                {experts: np.ones((2, 4, 64), np.float32), experts.replace("_A", "_B"): np.ones((2, 9, 4), np.float32)}
            ),
        ),
        hosted,
    )
