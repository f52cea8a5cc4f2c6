"""Sizes read from a `config.json`; the totals are what transformers builds of the same fields."""

from __future__ import annotations

from typing import Any

import pytest

from algorithms.config_json import from_config_json
from algorithms.model_specs import model_spec

PLAIN: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "intermediate_size": 96,
    "vocab_size": 1000,
    "tie_word_embeddings": False,
}
MIXTURE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
ROW = 1000 * 64
ATTENTION = 2 * 64 * 64 + 2 * 64 * 16
NORMS = 7 * 64


@pytest.mark.parametrize(
    ("change", "total"),
    [
        ({}, 2 * ROW + 3 * (ATTENTION + 3 * 64 * 96) + NORMS),
        ({"tie_word_embeddings": True}, ROW + 3 * (ATTENTION + 3 * 64 * 96) + NORMS),
        ({"tie_word_embeddings": None}, 2 * ROW + 3 * (ATTENTION + 3 * 64 * 96) + NORMS),
        ({"num_key_value_heads": None}, 2 * ROW + 3 * (4 * 64 * 64 + 3 * 64 * 96) + NORMS),
        ({"head_dim": 16}, 2 * ROW + 3 * (2 * ATTENTION + 3 * 64 * 96) + NORMS),
        ({"model_type": "qwen2"}, 2 * ROW + 3 * (ATTENTION + 64 + 2 * 16 + 3 * 64 * 96) + NORMS),
        (MIXTURE, 2 * ROW + 3 * (ATTENTION + 64 * 8 + 8 * 3 * 64 * 32) + NORMS),
        (
            {"num_local_experts": 4, "num_experts_per_tok": 2},
            2 * ROW + 3 * (ATTENTION + 64 * 4 + 4 * 3 * 64 * 96) + NORMS,
        ),
        (
            MIXTURE | {"shared_expert_intermediate_size": 64},
            2 * ROW + 3 * (ATTENTION + 64 * 8 + (8 + 2) * 3 * 64 * 32) + NORMS,
        ),
        (MIXTURE | {"n_shared_experts": 1}, 2 * ROW + 3 * (ATTENTION + 64 * 8 + (8 + 1) * 3 * 64 * 32) + NORMS),
    ],
    ids=["plain", "tied", "null is untied", "no groups", "head_dim", "qwen2", "experts", "mixtral", "wide", "shared"],
)
def test_every_parameter_is_counted(change: dict[str, Any], total: int) -> None:
    assert from_config_json(PLAIN | change, "mine").total == total


def test_what_a_file_leaves_out_is_tied_and_a_token_meets_few_of_the_experts() -> None:
    config = {field: value for field, value in PLAIN.items() if field != "tie_word_embeddings"}
    assert from_config_json(config, "mine").total == from_config_json(PLAIN, "mine").total - ROW
    mixture = from_config_json(PLAIN | MIXTURE, "mine")
    assert (mixture.experts, mixture.experts_per_token, mixture.d_ff) == (8, 2, 32)
    assert mixture.total - mixture.active == 3 * 6 * 3 * 64 * 32 + ROW


def test_of_a_multimodal_model_the_language_model_is_read_and_either_part_may_say_that_it_is_tied() -> None:
    known = model_spec("Qwen/Qwen2.5-7B-Instruct")
    text = {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
    }
    nested = {"text_config": text, "hidden_size": 1, "tie_word_embeddings": False}
    assert from_config_json(nested, known.name).total == known.total
    assert from_config_json(nested, known.name).kv_bytes_per_token == known.kv_bytes_per_token
    assert from_config_json({"text_config": text}, known.name).tied


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size must be a positive integer, and is None"),
        ({"vocab_size": "many"}, "vocab_size must be a positive integer, and is 'many'"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer, and is True"),
        ({"head_dim": 2.5}, r"head_dim must be a positive integer, and is 2\.5"),
        ({"num_attention_heads": 7}, "num_attention_heads = 7: hidden_size = 64 is not a multiple of it"),
        ({"num_key_value_heads": 3}, "num_key_value_heads = 3: num_attention_heads = 8 is not a multiple of it"),
        ({"hidden_size": 10**400}, r"hidden_size must be at most 1,000,000,000, and is 10+\.\.\.0+$"),
        ({"num_experts": 8}, "num_experts_per_tok must be a positive integer, and is None"),
        (MIXTURE | {"num_experts_per_tok": 9}, "num_experts_per_tok = 9: a layer has 8 experts"),
        (MIXTURE | {"shared_expert_intermediate_size": 50}, "shared_expert_intermediate_size = 50: it is counted as"),
        ({"kv_lora_rank": 512}, "kv_lora_rank = 512 is a shape that is not counted here"),
        (MIXTURE | {"decoder_sparse_step": 2}, "decoder_sparse_step = 2 is a shape that is not counted here"),
        ({"model_type": "gpt_neox"}, "model_type = 'gpt_neox' is a shape that is not counted here"),
    ],
    ids=lambda value: next(iter(reversed(value))) if isinstance(value, dict) else "",
)
def test_what_cannot_be_counted_is_refused_by_its_field(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        from_config_json(PLAIN | change, "mine")
