import re

import pytest

from algorithms.model_specs import known_models, model_spec

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


def test_totals_are_exact_where_all_of_a_model_is_counted() -> None:
    """By hand: embedding, then the layers' attention, feed-forward and norms, then the last norm and the output."""
    smol = 49_152 * 576 + 30 * (2 * 576 * 576 + 2 * 576 * 192 + 3 * 576 * 1536 + 2 * 576) + 576
    assert model_spec("smollm2-135m-instruct").total == smol == 134_515_008
    biases = 896 + 2 * 128
    qwen = 151_936 * 896 + 24 * (2 * 896 * 896 + 2 * 896 * 128 + biases + 3 * 896 * 4864 + 2 * 896) + 896
    assert model_spec("qwen2.5-0.5b-instruct").total == qwen == 494_032_768
    llama = 2 * 128_256 * 4096 + 32 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14_336 + 2 * 4096) + 4096
    assert model_spec("llama-3.1-8b-instruct").total == llama == 8_030_261_248
    assert model_spec("mistral-7b-instruct-v0.3").total == 7_248_023_552
    norms = 48 * 2 * 128  # of queries and keys: the only ones that are left out
    assert model_spec("qwen3-30b-a3b").total == 30_532_122_624 - norms


def test_a_dense_model_s_active_parameters_leave_out_the_embedding_that_is_only_looked_up() -> None:
    llama, smol = model_spec("meta-llama/Llama-3.1-8B-Instruct"), model_spec("HuggingFaceTB/SmolLM2-135M-Instruct")
    assert llama.total - llama.active == 128_256 * 4096
    assert smol.total == smol.active  # its embedding is the output layer


def test_a_model_is_found_by_its_short_name_in_any_case_and_an_unknown_one_is_refused_with_the_nearest() -> None:
    assert model_spec("smollm2-135m-instruct") is model_spec("HuggingFaceTB/SmolLM2-135M-Instruct")
    with pytest.raises(ValueError, match=re.escape("'Qwen/Qwen3-9B' are not known: did you mean 'Qwen/Qwen3-8B'?")):
        model_spec("Qwen/Qwen3-9B")


def test_every_row_says_where_it_is_from() -> None:
    assert all(spec.source for spec in known_models().values())
