"""What our own engine holds, as it is planned. Against a real process: `python -m benchmarks.plan`."""

from __future__ import annotations

from pathlib import Path

import pytest

import models
from algorithms.config_json import from_config_json
from algorithms.model_specs import ModelSpec, model_spec
from flows.checks import local_memory
from flows.checks.local_memory import Held, engine_memory
from gateway.providers.local.base_weights import load_base
from gateway.providers.local.decoding import _BLOCK
from gateway.providers.local.head import CHUNK
from gateway.providers.local.lora import LoraLayout
from gateway.providers.local.options import EngineOptions
from gateway.providers.local.sampler import MAX_ROWS


@pytest.fixture(scope="module")
def tiny() -> ModelSpec:
    return from_config_json(models.resolve("tiny").config, "tiny")


def test_the_engine_s_own_sizes_are_the_planned_ones() -> None:
    options = EngineOptions()
    assert options.micro_batch_tokens == local_memory.PACK_TOKENS
    assert options.cache_bytes == local_memory.CACHE_BYTES
    assert (options.hot_adapters, options.snapshots_in_memory) == (local_memory.MERGED, local_memory.SNAPSHOTS)
    assert (local_memory.HEAD_POSITIONS, local_memory.MOST_ROWS, local_memory.CACHE_BLOCK) == (CHUNK, MAX_ROWS, _BLOCK)


def test_weights_and_adapters_are_counted_to_the_parameter(tiny: ModelSpec) -> None:
    base = load_base(models.resolve("tiny"))
    linears = sum(weight.numel() for layer in base.layers for weight in layer.values())
    norms = sum(norm.numel() for norm in (*base.attention_norms, *base.mlp_norms, base.final_norm))
    assert tiny.total == base.embedding.numel() + linears + norms
    held = engine_memory(tiny, Held(rank=8, packed=100, longest=50))
    assert held.weights == local_memory.PROCESS + 4 * (tiny.total + linears)
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
    small = Held(rank=16, packed=200, longest=50)
    assert engine_memory(spec, Held(rank=16, packed=9000, longest=50)) == engine_memory(
        spec, Held(rank=16, packed=1024, longest=50)
    )
    longer = engine_memory(spec, Held(rank=16, packed=9000, longest=3000))
    assert longer.activations > 2 * engine_memory(spec, Held(rank=16, packed=9000, longest=50)).activations
    two = engine_memory(spec, Held(rank=16, trained=2, packed=200, longest=50))
    assert two.weights - engine_memory(spec, small).weights == pytest.approx(4 * 106.2e6, rel=0.01)
    many = Held(rank=16, packed=100, longest=50, prompts=8, rows=96, prompt=20, completion=30)
    assert engine_memory(spec, many).kv_cache == 4 * 2 * 30 * 192 * (8 * 20 + 96 * 64)
    few = Held(rank=16, packed=2000, longest=50, prompts=8, rows=8, prompt=20, completion=30)
    assert engine_memory(spec, few).kv_cache == 0, "training holds more, and sampling has let go by then"
