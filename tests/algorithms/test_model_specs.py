import re

import pytest

from algorithms.model_specs import from_config_json, known_models, model_spec

# Totals and active parameters in billions, as the makers state them.
PUBLISHED = {
    "HuggingFaceTB/SmolLM2-135M-Instruct": (0.134515, None),
    "HuggingFaceTB/SmolLM2-1.7B-Instruct": (1.711, None),
    "Qwen/Qwen2.5-0.5B-Instruct": (0.494, None),
    "Qwen/Qwen2.5-7B-Instruct": (7.616, None),
    "Qwen/Qwen2.5-72B-Instruct": (72.7, None),
    "Qwen/Qwen3-8B": (8.19, None),
    "Qwen/Qwen3-32B": (32.76, None),
    "Qwen/Qwen3-30B-A3B": (30.53, 3.3),
    "Qwen/Qwen3-235B-A22B": (235.09, 22),
    "meta-llama/Llama-3.2-1B-Instruct": (1.236, None),
    "meta-llama/Llama-3.1-8B-Instruct": (8.030, None),
    "meta-llama/Llama-3.3-70B-Instruct": (70.55, None),
    "mistralai/Mistral-7B-Instruct-v0.3": (7.248, None),
    "openai/gpt-oss-20b": (20.91, 3.61),
    "openai/gpt-oss-120b": (116.8, 5.13),
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_parameters_counted_from_the_sizes_are_the_published_ones(name: str) -> None:
    total, active = PUBLISHED[name]
    assert model_spec(name).total / 1e9 == pytest.approx(total, rel=0.001)
    if active is not None:  # some count the embedding that is only looked up, some do not
        assert model_spec(name).active / 1e9 == pytest.approx(active, rel=0.1)


def test_a_dense_model_s_active_parameters_leave_out_the_embedding_that_is_only_looked_up() -> None:
    llama, smol = model_spec("meta-llama/Llama-3.1-8B-Instruct"), model_spec("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert llama.total - llama.active == 128_256 * 4096
    assert smol.total == smol.active  # its embedding is the output layer


def test_a_model_is_found_by_its_short_name_in_any_case_and_an_unknown_one_is_refused_with_the_nearest() -> None:
    assert model_spec("smollm2-135m-instruct") is model_spec("HuggingFaceTB/SmolLM2-135M-Instruct")
    with pytest.raises(ValueError, match=re.escape("'Qwen/Qwen3-9B' are not known: did you mean 'Qwen/Qwen3-8B'?")):
        model_spec("Qwen/Qwen3-9B")


def test_a_config_json_is_read() -> None:
    config = {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "intermediate_size": 18944,
        "vocab_size": 152064,
        "tie_word_embeddings": False,
    }
    known = model_spec("Qwen/Qwen2.5-7B-Instruct")
    assert from_config_json(config, "mine").total == known.total
    assert from_config_json({"text_config": config}, "mine").kv_bytes_per_token == known.kv_bytes_per_token
    mixture = config | {"model_type": "qwen3_moe", "num_experts": 8, "num_experts_per_tok": 2}
    mixture |= {"moe_intermediate_size": 1000, "head_dim": 64}
    spec = from_config_json(mixture, "mine")
    assert (spec.experts, spec.experts_per_token, spec.d_ff, spec.head_size) == (8, 2, 1000, 64)
    assert spec.total - spec.active == 28 * 6 * 3 * 3584 * 1000 + 152064 * 3584


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size must be a positive integer, and is None"),
        ({"vocab_size": "many"}, "vocab_size must be a positive integer, and is 'many'"),
        ({"kv_lora_rank": 512}, "kv_lora_rank = 512 is a shape that is not counted here"),
    ],
)
def test_a_config_json_that_cannot_be_counted_is_refused_by_its_field(change: dict[str, object], message: str) -> None:
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 4, "vocab_size": 100}
    with pytest.raises(ValueError, match=message):
        from_config_json(config | {"intermediate_size": 128} | change, "mine")


def test_every_row_says_where_it_is_from() -> None:
    assert all(spec.source for spec in known_models().values())
