import math

import pytest

from algorithms import NO_TERMS, LossTerms, clip_range


def test_tinker_takes_the_bounds_on_the_datum_and_an_empty_config():
    assert clip_range("tinker", 0.8, 1.28) == LossTerms(0.8, 1.28, {})


@pytest.mark.parametrize("provider", ["modal", "local"])
def test_modal_and_local_take_the_bounds_in_the_config_and_nothing_on_the_datum(provider):
    config = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.28}
    assert clip_range(provider, 0.8, 1.28) == LossTerms(None, None, config)


@pytest.mark.parametrize("provider", ["tinker", "modal", "local"])
def test_a_bound_that_is_not_given_is_the_providers(provider):
    assert clip_range(provider, None, None) == NO_TERMS


def test_one_bound_may_be_given_without_the_other():
    assert clip_range("local", None, 5.0).loss_config == {"clip_high_threshold": 5.0}
    assert clip_range("tinker", 0.5, None) == LossTerms(0.5, None, {})


def test_a_low_threshold_of_0_8_is_the_bound_0_8_and_not_0_2():
    assert clip_range("local", 0.8, None).loss_config == {"clip_low_threshold": 0.8}


@pytest.mark.parametrize(
    ("low", "high", "said"),
    [
        (-0.1, 1.2, r"clip_low is -0\.1: it is a bound of the ratio itself.*≥ 0"),
        (0.8, math.inf, "clip_high is inf"),
        (0.8, math.nan, "clip_high is nan"),
        (1.2, 0.8, r"clip_low is 1\.2.*give a bound ≤ 1"),
        (0.2, 0.28, r"clip_high is 0\.28.*not an epsilon: did you mean 1\.28"),
        (1.1, None, r"clip_low is 1\.1.*give a bound ≤ 1"),
    ],
)
def test_a_range_that_cannot_be_meant_is_refused_with_field_value_and_remedy(low, high, said):
    with pytest.raises(ValueError, match=said):
        clip_range("local", low, high)


def test_an_unknown_provider_is_refused_before_its_bounds_are_looked_at():
    with pytest.raises(ValueError, match="Unknown provider 'azure'"):
        clip_range("azure", 3, 2)
