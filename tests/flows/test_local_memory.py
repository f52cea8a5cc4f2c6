"""What our own engine holds, as it is planned. Against a real process: `python -m benchmarks.plan`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import models
from algorithms.config_json import from_config_json
from algorithms.model_specs import ModelSpec, model_spec
from flows.plan import engine_memory as planned
from flows.plan.engine_memory import engine_memory
from flows.plan.engine_work import PACK_TOKENS, Held
from gateway.providers.local.base_weights import load_base
from gateway.providers.local.decoding import _BLOCK
from gateway.providers.local.head import CHUNK
from gateway.providers.local.lora import LoraLayout
from gateway.providers.local.options import EngineOptions
from gateway.providers.local.sampler import MAX_ROWS


def replies(prompts: int, *, rank: int = 16, prompt: float = 40, trained: int = 1) -> Held:
    """Given ones, of ten tokens."""
    return Held(
        rank=rank,
        trained=trained,
        prompts=prompts,
        samples=1,
        prompt=prompt,
        longest_prompt=prompt,
        completion=10,
        sampled=False,
    )


@pytest.fixture(scope="module")
def tiny() -> ModelSpec:
    return from_config_json(models.resolve("tiny").config, "tiny")


def test_the_engine_s_own_sizes_are_the_planned_ones() -> None:
    options = EngineOptions()
    assert options.micro_batch_tokens == PACK_TOKENS
    assert options.cache_bytes == planned.CACHE_BYTES
    assert (options.hot_adapters, options.snapshots_in_memory) == (planned.MERGED, planned.SNAPSHOTS)
    assert (planned.HEAD_POSITIONS, planned.MOST_ROWS, planned.CACHE_BLOCK) == (CHUNK, MAX_ROWS, _BLOCK)


def test_weights_and_adapters_are_counted_to_the_parameter(tiny: ModelSpec) -> None:
    base = load_base(models.resolve("tiny"))
    linears = sum(weight.numel() for layer in base.layers for weight in layer.values())
    norms = sum(norm.numel() for norm in (*base.attention_norms, *base.mlp_norms, base.final_norm))
    assert tiny.total == base.embedding.numel() + linears + norms
    held = engine_memory(tiny, replies(1, rank=8))
    assert (held.process, held.weights) == (planned.PROCESS, 4 * (tiny.total + linears))
    assert held.adapter_and_optimizer == 4 * 5 * LoraLayout(base.shapes, 8, 16).size


@pytest.mark.smollm2
def test_the_135m_model_s_parameters_are_those_of_its_file() -> None:
    folder = models.resolve("smollm2-135m-instruct")
    spec = model_spec("smollm2-135m-instruct")
    stored = sum(Path(file).stat().st_size for file in folder.weight_files)
    assert 0 <= stored - 4 * spec.total < 100_000, "32-bit numbers, and a header"
    assert from_config_json(folder.config, "x").total == spec.total


def test_a_long_prompt_a_second_run_and_more_rows_take_more_and_sampling_and_training_take_turns() -> None:
    spec = model_spec("smollm2-135m-instruct")
    several = replies(80)
    assert engine_memory(spec, several) == engine_memory(spec, replies(800)), "a third pack finds room"
    assert engine_memory(spec, replies(2, prompt=3000)).activations > 2 * engine_memory(spec, several).activations
    two = engine_memory(spec, replies(4, trained=2))
    assert two.weights - engine_memory(spec, replies(4)).weights == pytest.approx(4 * 106.2e6, rel=0.01)
    many = Held(rank=16, prompts=8, samples=12, prompt=5, longest_prompt=20, completion=1, sampled=True)
    assert engine_memory(spec, many).kv_cache == 4 * 2 * 30 * 192 * (8 * 20 + 96 * 64)
    few = Held(rank=16, prompts=40, samples=1, prompt=20, longest_prompt=20, completion=30, sampled=True)
    assert engine_memory(spec, few).kv_cache == 0, "training holds more, and sampling has let go by then"


def test_packs_are_full_but_where_whole_trees_of_one_size_leave_room() -> None:
    group = Held(rank=16, prompts=8, samples=8, prompt=60, longest_prompt=70, completion=60, sampled=True)
    assert (group.tree, group.packed, group.pack) == (540, 4320, 1024)
    assert replace(group, even=True).pack == 540
    assert replace(group, even=True, completion=10).pack == 7 * 140
    assert replace(group, prompts=1).pack == 540
    assert replace(group, even=True, longest_prompt=2000).pack == 3 * 540
