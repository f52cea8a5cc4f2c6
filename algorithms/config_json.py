"""The sizes of a model as its Hugging Face `config.json` has them.

A shape that `ModelSpec` does not count is refused: a number that is quietly wrong by half is worse than none.
"""

from __future__ import annotations

from collections.abc import Mapping
from reprlib import repr as shortened
from typing import Any

from algorithms.model_specs import ModelSpec

LARGEST = 10**9
"""No model has more of anything that is counted here; and every product of them stays a number."""

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
PER_TOKEN = ("num_experts_per_tok", "experts_per_token")
SHARED = ("n_shared_experts", "num_shared_experts")
SHARED_WIDTH = ("shared_expert_intermediate_size", "shared_intermediate_size")
OTHER_SHAPES = (
    "is_encoder_decoder",
    "kv_lora_rank",  # latent attention
    "first_k_dense_replace",  # layers that are not alike, as all below
    "mlp_only_layers",
    "linear_num_key_heads",
    "mamba_d_state",
)
EVERY_SO_MANY = ("decoder_sparse_step", "interleave_moe_layer_step")
"""Experts in every layer where it is 1, in every second where it is 2."""
UNGATED = frozenset({"bloom", "falcon", "gpt_bigcode", "gpt_neox", "nemotron", "opt", "phi", "starcoder2"})
"""Model types whose feed-forward layer is two matrices, not three."""


def from_config_json(config: Mapping[str, Any], name: str, source: str = "config.json") -> ModelSpec:
    """The sizes.

    Args:
        config: the parsed file. Of a multimodal model its `text_config` is read.
        name: what to call it.
        source: where the file is.

    Raises:
        ValueError: a field that is needed is not there, or is not a positive integer; numbers that do not fit together;
            a shape that `ModelSpec` does not count. The message begins with the field.
    """
    nested = config.get("text_config")
    text: Mapping[str, Any] = nested if isinstance(nested, Mapping) else config
    _refuse_other_shapes(text)
    heads, d_model = _size(text, "num_attention_heads"), _size(text, "hidden_size")
    kv_heads, head_size = _size(text, "num_key_value_heads", heads), _size(text, "head_dim", d_model // heads)
    if not text.get("head_dim") and d_model % heads:
        raise ValueError(
            f"num_attention_heads = {heads}: hidden_size = {d_model} is not a multiple of it, so name head_dim"
        )
    if heads % kv_heads:
        raise ValueError(f"num_key_value_heads = {kv_heads}: num_attention_heads = {heads} is not a multiple of it")
    # A file leaves out what is Hugging Face's default, and that is one matrix for both.
    tied = text.get("tie_word_embeddings", config.get("tie_word_embeddings", True))
    qwen2 = str(text.get("model_type")).startswith("qwen2")  # it has them, and no field that says so
    return ModelSpec(
        name=name,
        layers=_size(text, "num_hidden_layers"),
        d_model=d_model,
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        vocab=_size(text, "vocab_size"),
        tied=bool(tied),
        attention_bias=bool(text.get("attention_bias", qwen2)),
        source=source,
        **_feed_forward(text),
    )


def _feed_forward(config: Mapping[str, Any]) -> dict[str, int]:
    """Width and experts: `d_ff` and, of a mixture, how many there are, are met, are shared."""
    experts = _size(config, _which(config, EXPERTS), 1)
    if experts == 1:
        return {"d_ff": _size(config, "intermediate_size")}
    width = _size(config, _which(config, ("moe_intermediate_size", "intermediate_size")))
    met = _size(config, field := _which(config, PER_TOKEN))
    if met > experts:
        raise ValueError(f"{field} = {met}: a layer has {experts} experts")
    shared = _size(config, _which(config, SHARED), 0)
    if wide := _size(config, field := _which(config, SHARED_WIDTH), 0):
        if wide % width:
            raise ValueError(f"{field} = {wide}: it is counted as whole experts, whose width is {width}")
        shared = wide // width
    return {"d_ff": width, "experts": experts, "experts_per_token": met, "shared_experts": shared}


def _refuse_other_shapes(config: Mapping[str, Any]) -> None:
    other = [field for field in OTHER_SHAPES if config.get(field)]
    other += [field for field in EVERY_SO_MANY if config.get(field, 1) != 1]
    other += ["model_type"] if config.get("model_type") in UNGATED else []
    if other:
        raise ValueError(f"{other[0]} = {config[other[0]]!r} is a shape that is not counted here")


def _which(config: Mapping[str, Any], spellings: tuple[str, ...]) -> str:
    """The field's name in this file, of those that models have for it; the first where it has none of them."""
    return next((field for field in spellings if config.get(field) is not None), spellings[0])


def _size(config: Mapping[str, Any], field: str, default: int | None = None) -> int:
    """A positive integer, not absurdly large; or the default where the field is not there, null or 0."""
    value = config.get(field)
    if default is not None and (value is None or value == 0):
        return default
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueError(f"{field} must be a positive integer, and is {value!r}")
    if value > LARGEST:
        raise ValueError(f"{field} must be at most {LARGEST:,}, and is {shortened(value)}")
    return value
