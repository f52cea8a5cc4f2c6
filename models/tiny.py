"""`tiny`: a two-layer Llama of 64 symbols, built from a seed, on which whole pipelines run in a second.

It knows nothing, but it learns: embeddings of this width (0.3) start it at an entropy of about 2 nats of a possible
4.2, broad enough for GRPO to find a way. Its tokenizer reads characters, so that a prompt can be read by eye.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file
from tokenizers import AddedToken, Regex, Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers import models as tokenizer_models

from models.folder import ARCHITECTURE
from models.gguf import Floats

NAME = "tiny"
FORM = "1"
SEED = 7
EMBEDDING_STD = 0.3

SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")  # the ids 0, 1, 2, as SmolLM2 has them
UNKNOWN = "\N{REPLACEMENT CHARACTER}"
SYMBOLS = (*SPECIALS, UNKNOWN, *string.digits, *string.ascii_lowercase, " ", "\n", *"+-*/=?.,:()'\"!;<>[]_%$")

# ChatML with roles of one letter: a character tokenizer pays for every letter of "assistant".
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'][0] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>a\n' }}{% endif %}"
)

CONFIG: dict[str, Any] = {
    "architectures": [ARCHITECTURE],
    "model_type": "llama",
    "dtype": "float32",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "rope_theta": 10000.0,
    "rms_norm_eps": 1e-5,
    "vocab_size": len(SYMBOLS),
    "tie_word_embeddings": True,
    "hidden_act": "silu",
    "attention_bias": False,
    "mlp_bias": False,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 2,
}

_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": SPECIALS[1],
    "eos_token": SPECIALS[2],
    "pad_token": SPECIALS[2],
    "unk_token": UNKNOWN,
    "chat_template": CHAT_TEMPLATE,
    "model_max_length": CONFIG["max_position_embeddings"],
    "clean_up_tokenization_spaces": False,
}


def build(folder: Path, progress: Callable[[str], None]) -> None:
    """Write the model as a Hugging Face folder; the same bytes every time."""
    progress(f"building the model {NAME!r}")
    for file_name, content in (("config.json", CONFIG), ("tokenizer_config.json", _TOKENIZER_CONFIG)):
        (folder / file_name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    save_file(seeded_weights(SEED), folder / "model.safetensors", metadata={"format": "pt"})
    character_tokenizer().save(str(folder / "tokenizer.json"))


def seeded_weights(seed: int) -> dict[str, Floats]:
    """Every weight under its Hugging Face name: linears N(0, 1/in), norms one, embedding N(0, 0.3²)."""
    random = np.random.default_rng(seed)
    width, inner = CONFIG["hidden_size"], CONFIG["intermediate_size"]
    key_width = CONFIG["num_key_value_heads"] * CONFIG["head_dim"]

    def normal(rows: int, columns: int, std: float) -> Floats:
        return (random.standard_normal((rows, columns)) * std).astype(np.float32)

    linears = {
        "self_attn.q_proj": (width, width),
        "self_attn.k_proj": (key_width, width),
        "self_attn.v_proj": (key_width, width),
        "self_attn.o_proj": (width, width),
        "mlp.gate_proj": (inner, width),
        "mlp.up_proj": (inner, width),
        "mlp.down_proj": (width, inner),
    }
    weights = {"model.embed_tokens.weight": normal(CONFIG["vocab_size"], width, EMBEDDING_STD)}
    for layer in range(CONFIG["num_hidden_layers"]):
        prefix = f"model.layers.{layer}."
        for linear, (rows, columns) in linears.items():
            weights[f"{prefix}{linear}.weight"] = normal(rows, columns, 1 / math.sqrt(columns))
        for norm in ("input_layernorm", "post_attention_layernorm"):
            weights[f"{prefix}{norm}.weight"] = np.ones(width, np.float32)
    weights["model.norm.weight"] = np.ones(width, np.float32)
    return weights


def character_tokenizer() -> Tokenizer:
    """One token a character, capitals read as small letters, everything else as one unknown symbol."""
    vocabulary = {symbol: index for index, symbol in enumerate(SYMBOLS)}
    tokenizer = Tokenizer(tokenizer_models.WordLevel(vocabulary, unk_token=UNKNOWN))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIALS])
    return tokenizer
