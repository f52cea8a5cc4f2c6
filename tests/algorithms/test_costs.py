import pytest

from algorithms.costs import (
    TokenCounts,
    attention_flops,
    flops,
    logprobs_flops,
    lora_training_flops,
    lora_training_flops_as_given,
    rollout_flops,
    training_flops,
)
from algorithms.gpus import gpu, gpus
from algorithms.memory import (
    activation_bytes,
    adapter_bytes,
    kv_cache_bytes,
    lora_memory,
    ppo_memory,
)
from algorithms.model_specs import model_spec

LLAMA = model_spec("meta-llama/Llama-3.1-8B-Instruct")
P = 8e9


def test_a_token_costs_what_tinker_nomics_says() -> None:
    assert rollout_flops(P) == 1.6e10
    assert logprobs_flops(P) == 1.6e10
    assert training_flops(P) == 4.8e10
    # 2P + 6P·32/4096 = 1.6e10 + 3.75e8
    assert lora_training_flops_as_given(P, rank=32, d_model=4096) == pytest.approx(1.6375e10)


def test_lora_training_is_two_thirds_of_full_training_as_the_note_beside_the_formula_says() -> None:
    assert lora_training_flops(P, rank=32, d_model=4096) == pytest.approx(3.2375e10)
    assert lora_training_flops(P, rank=1, d_model=100_000) / training_flops(P) == pytest.approx(2 / 3, rel=1e-4)
    # …which the formula itself is not: a third.
    assert lora_training_flops_as_given(P, rank=1, d_model=100_000) / training_flops(P) == pytest.approx(
        1 / 3, rel=1e-4
    )


def test_attention_is_counted_by_head_and_layer() -> None:
    # 4 · 32 layers · 32 heads · 128 wide · 1000 tokens
    assert attention_flops(LLAMA, 1000) == 524_288_000


def test_a_run_adds_up_its_tokens() -> None:
    tokens = TokenCounts(prefill=1000, sampled=500, trained=200, scored=100)
    active = LLAMA.active
    assert flops(tokens, LLAMA, rank=None) == 1600 * 2 * active + 200 * 6 * active
    assert flops(tokens, LLAMA, rank=16) == pytest.approx(1600 * 2 * active + 200 * (4 + 6 * 16 / 4096) * active)
    with_attention = flops(tokens, LLAMA, rank=None, context=1000) - flops(tokens, LLAMA, rank=None)
    assert with_attention == (1600 + 3 * 200) * 524_288_000


def test_memory_is_what_tinker_nomics_says() -> None:
    # GRPO with LoRA: 2·8e9 + 2·8e9 + 0.5e9 + 1e9 + 2e9
    assert lora_memory(P, P, kv_cache=1e9, activations=2e9).total == 35.5e9
    # PPO: 16·8e9 + 16·8e9 + 2·8e9 + 2·8e9
    assert ppo_memory(P, P, P, P).total == 288e9


def test_ppo_takes_four_to_eight_times_as_much_as_grpo_with_lora() -> None:
    # The note's range: with a reference of its own, and with keys, values and activations beside.
    assert 4 < ppo_memory(P, P, P, P).total / lora_memory(P, P).total < 9


def test_keys_values_and_activations_are_counted_by_token() -> None:
    # 2 (keys, values) · 32 layers · 8 heads · 128 · 2 bytes
    assert kv_cache_bytes(LLAMA, 1000) == 131_072_000
    # 32 layers · 2 · 4096 + 34 · 4096 + 6 · 128256, a token
    assert activation_bytes(LLAMA, 10) == 10 * (262_144 + 139_264 + 769_536)
    assert activation_bytes(LLAMA, 10, recompute=False) == 10 * (32 * 139_264 + 769_536)
    assert adapter_bytes(1e6) == 16e6


def test_a_gpu_takes_as_long_as_the_share_of_its_peak_that_is_had() -> None:
    assert gpu("H100").seconds(989e12, utilization=0.5) == 2
    with pytest.raises(ValueError, match=r"share of the peak.*not 1\.5"):
        gpu("h100").seconds(1, utilization=1.5)
    with pytest.raises(ValueError, match="unknown GPU 'h1000': did you mean 'h100'"):
        gpu("h1000")
    assert all(kind.memory > 1e10 and kind.flops > 1e13 and kind.source for kind in gpus().values())
