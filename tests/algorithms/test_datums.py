import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from algorithms import rl_datum, sft_datum, tensor, trained_tokens
from whitney.types import Datum

TOKENS = st.lists(st.integers(0, 50_000), min_size=1, max_size=20)


def test_a_tensor_states_its_dtype_its_shape_and_flat_values():
    assert tensor("float32", [1, 2.5]) == {"dtype": "float32", "shape": [2], "values": [1.0, 2.5]}


def test_rows_become_a_two_dimensional_tensor_in_row_major_order():
    assert tensor("int64", [[1, 2, 3], [4, 5, 6]]) == {"dtype": "int64", "shape": [2, 3], "values": [1, 2, 3, 4, 5, 6]}


@pytest.mark.parametrize(
    ("dtype", "values", "said"),
    [
        ("float16", [1.0], "float16"),
        ("float32", [[1.0], [1.0, 2.0]], r"\[1, 2\]"),
        ("int64", [1.5], "int64"),
        ("float32", [0.0, math.nan], "value 1 is not finite"),
        ("float32", [math.inf, -math.inf], "value 0 is not finite"),
    ],
)
def test_a_tensor_that_cannot_be_sent_is_refused_with_the_reason(dtype, values, said):
    with pytest.raises(ValueError, match=said):
        tensor(dtype, values)


def test_an_sft_datum_trains_the_completion_and_nothing_of_the_prompt():
    assert sft_datum([5, 6, 7], [8, 9]) == {
        "input": {"token_ids": [5, 6, 7, 8]},
        "loss_inputs": {
            "target_tokens": {"dtype": "int64", "shape": [4], "values": [6, 7, 8, 9]},
            "weights": {"dtype": "float32", "shape": [4], "values": [0.0, 0.0, 1.0, 1.0]},
        },
    }


def test_an_rl_datum_carries_the_samplers_logprobs_and_one_advantage_for_every_token():
    inputs = rl_datum([5, 6], [8, 9], [-0.5, -0.25], 2)["loss_inputs"]
    assert {name: tensor_["values"] for name, tensor_ in inputs.items()} == {
        "target_tokens": [6, 8, 9],
        "weights": [0.0, 1.0, 1.0],
        "logprobs": [0.0, -0.5, -0.25],
        "advantages": [0.0, 2.0, 2.0],
    }


def test_advantages_may_differ_token_by_token():
    datum = rl_datum([5, 6], [8, 9], [-0.5, -0.25], [1.0, -1.0])
    assert datum["loss_inputs"]["advantages"]["values"] == [0.0, 1.0, -1.0]


def test_clip_bounds_travel_as_tensors_only_when_asked_for():
    clipped = rl_datum([5, 6], [8], [-0.5], 1.0, clip_low=0.8, clip_high=1.2)["loss_inputs"]
    assert clipped["clip_low_threshold"]["values"] == [0.0, 0.8]
    assert clipped["clip_high_threshold"]["values"] == [0.0, 1.2]
    assert "clip_low_threshold" not in rl_datum([5, 6], [8], [-0.5], 1.0)["loss_inputs"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (([1], [2, 3], [-0.1], 1.0), "sampled_logprobs has 1 entries, sampled_tokens has 2"),
        (([1], [2, 3], [-0.1, -0.1], [1.0, 1.0, 1.0]), "advantage has 3 entries, sampled_tokens has 2"),
        (([], [2, 3], [-0.1, -0.1], 1.0), "prompt_tokens is empty"),
        (([1], [], [], 1.0), "at least two"),
        (([1, 2], [], [], 1.0), "sampled_tokens is empty"),
    ],
)
def test_lists_that_do_not_pair_are_refused_with_both_lengths(arguments, said):
    with pytest.raises(ValueError, match=said):
        rl_datum(*arguments)


def test_an_empty_prompt_is_an_error_and_not_a_silent_shift():
    with pytest.raises(ValueError, match="prompt_tokens is empty"):
        sft_datum([], [1, 2, 3])


def test_a_position_of_a_soft_target_counts_once_however_many_columns_it_has():
    datum = {"loss_inputs": {"weights": tensor("float32", [[0.0, 0.0], [0.5, 0.5], [0.0, 1.0]])}}
    assert trained_tokens(datum) == 2


@given(TOKENS, TOKENS, st.data())
def test_every_datum_passes_the_wires_own_checks(prompt, completion, data):
    logprobs = data.draw(st.lists(st.floats(-50, 0), min_size=len(completion), max_size=len(completion)))
    for datum in (rl_datum(prompt, completion, logprobs, 0.5), sft_datum(prompt, completion)):
        Datum.model_validate(datum)
        assert datum["input"]["token_ids"] + completion[-1:] == prompt + completion
        assert datum["loss_inputs"]["target_tokens"]["values"][-len(completion) :] == completion
        assert trained_tokens(datum) == len(completion)
