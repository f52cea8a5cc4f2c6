"""Base and adapter in one folder, written without torch: what PEFT's own merge computes, in the base's own type."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import PeftModel
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_torch_file
from transformers import AutoModelForCausalLM

import models
from models.adapter import CONFIG_FILE, WEIGHTS_FILE, AdapterFolder, matrices
from models.merge import merge, set_stop_tokens
from models.tensor_file import TensorFile

# peft 0.21 still asks transformers 5 by the attribute's old name
pytestmark = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")

RANK, ALPHA = 4, 8.0
LINEARS = ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"]
PROMPT = torch.tensor([[1, 14, 40, 5, 30]])


@pytest.fixture(scope="module")
def base() -> models.ModelFolder:
    return models.resolve("tiny")


def adapter_of(base: models.ModelFolder, folder: Path, modules: list[str] = LINEARS, **config: Any) -> AdapterFolder:
    random = np.random.default_rng(5)
    tensors = {}
    for module, (rows, columns) in matrices(base).items():
        if module.rsplit(".", 1)[-1] in modules:
            for side, shape in (("A", (RANK, columns)), ("B", (rows, RANK))):
                name = f"base_model.model.{module}.lora_{side}.weight"
                tensors[name] = (random.standard_normal(shape) * 0.1).astype(np.float32)
    folder.mkdir()
    save_file(tensors, folder / WEIGHTS_FILE)
    said = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": str(base.path), **config}
    (folder / CONFIG_FILE).write_text(
        json.dumps({"r": RANK, "lora_alpha": ALPHA, "target_modules": modules, "inference_mode": True, **said})
    )
    return AdapterFolder(folder)


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        answer: torch.Tensor = model.eval()(PROMPT).logits
    return answer


@pytest.mark.parametrize("config", [{}, {"use_rslora": True}], ids=["alpha over r", "rank-stabilized"])
def test_the_merged_folder_is_a_model_with_the_logits_of_base_and_adapter_in_peft(
    config: dict[str, Any], base: models.ModelFolder, tmp_path: Path
) -> None:
    adapter = adapter_of(base, tmp_path / "adapter", **config)
    assert merge(base, adapter, tmp_path / "merged") == 14
    plain = AutoModelForCausalLM.from_pretrained(base.path)
    before = logits(plain)
    theirs = PeftModel.from_pretrained(plain, tmp_path / "adapter")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert (logits(theirs) - before).abs().max() > 0.1, "the adapter changes nothing: the test would not tell"
    torch.testing.assert_close(logits(ours), logits(theirs), rtol=1e-4, atol=1e-4)
    merged = theirs.merge_and_unload().state_dict()
    for name, tensor in ours.state_dict().items():
        torch.testing.assert_close(tensor, merged[name], rtol=1e-5, atol=1e-5)
    models.resolve(str(tmp_path / "merged"))


def test_a_sharded_base_in_bfloat16_keeps_its_files_and_its_type(base: models.ModelFolder, tmp_path: Path) -> None:
    half = AutoModelForCausalLM.from_pretrained(base.path, dtype=torch.bfloat16)
    half.save_pretrained(tmp_path / "base", max_shard_size="40KB")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / "base" / name).write_bytes((base.path / name).read_bytes())
    sharded = models.resolve(str(tmp_path / "base"))
    assert len(sharded.weight_files) > 2
    merge(sharded, adapter_of(sharded, tmp_path / "adapter"), tmp_path / "merged")
    ours = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert ours.dtype == torch.bfloat16
    exact = AutoModelForCausalLM.from_pretrained(tmp_path / "base", dtype=torch.float32)
    merged = PeftModel.from_pretrained(exact, tmp_path / "adapter").merge_and_unload().state_dict()
    for name, tensor in ours.state_dict().items():
        # Half a unit in the last of bfloat16's eight bits, and a little for another order of addition.
        torch.testing.assert_close(tensor.float(), merged[name], rtol=2**-8, atol=1e-6)
    files = {file.name for file in (tmp_path / "base").iterdir()}
    assert {file.name for file in (tmp_path / "merged").iterdir()} == files


def test_numbers_are_rounded_to_bfloat16_as_torch_does(tmp_path: Path) -> None:
    values = np.random.default_rng(0).standard_normal(4096).astype(np.float32)
    values[:4] = [1 + 2**-8, 1 + 3 * 2**-8, -(1 + 2**-8), 0.0]  # half-way between two neighbours, and zero
    save_torch_file({"x": torch.zeros(4096, dtype=torch.bfloat16)}, tmp_path / "x.safetensors")
    file = TensorFile(tmp_path / "x.safetensors")
    file.overwrite("x", values)
    assert np.array_equal(file.floats("x"), torch.from_numpy(values).bfloat16().float().numpy())


@pytest.mark.parametrize(
    ("modules", "config", "message"),
    [
        (LINEARS, {"use_dora": True}, "use_dora = True, which is not merged here"),
        (LINEARS, {"rank_pattern": {"q_proj": 8}}, "rank_pattern"),
        ([*LINEARS, "lm_head"], {}, "lm_head is adapted, and tiny has no weights of its own for it"),
    ],
    ids=["DoRA", "a rank of its own", "a tied head"],
)
def test_what_is_more_than_b_times_a_is_not_merged(
    modules: list[str], config: dict[str, Any], message: str, base: models.ModelFolder, tmp_path: Path
) -> None:
    with pytest.raises(models.ModelError, match=message):
        merge(base, adapter_of(base, tmp_path / "adapter", modules, **config), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("known", "then"),
    [(None, [2, 0]), ({"eos_token_id": 2}, [2, 0]), ({"eos_token_id": [7, 2], "top_k": 5}, [2, 0, 7])],
    ids=["none", "one", "several"],
)
def test_the_tokens_that_end_a_reply_are_added_to_those_that_the_base_has(
    known: dict[str, Any] | None, then: list[int], tmp_path: Path
) -> None:
    file = tmp_path / "generation_config.json"
    if known is not None:
        file.write_text(json.dumps(known))
    set_stop_tokens(tmp_path, [2, 0])
    assert json.loads(file.read_text()) == {**(known or {}), "eos_token_id": then}


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda file: file.unlink(), "x.safetensors cannot be read"),
        (lambda file: file.write_bytes(b"no tensors"), "x.safetensors cannot be read as safetensors"),
    ],
    ids=["missing", "something else"],
)
def test_a_file_that_is_no_safetensors_is_named(damage: Callable[[Path], object], message: str, tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    file.write_bytes(b"")
    damage(file)
    with pytest.raises(models.ModelError, match=message):
        TensorFile(file)
