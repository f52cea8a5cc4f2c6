import pytest

from algorithms.spans import Span, added, spans_of, summed


def test_what_is_planned_adds_up_and_scales_value_by_value() -> None:
    one, other = Span(1, 2, 4), Span.exactly(3)
    assert one + other == Span(4, 5, 7)
    assert one * 3 == Span(3, 6, 12)
    assert one / 2 == Span(0.5, 1, 2)
    assert (one.exact, other.exact) == (False, True)
    assert one.as_json() == {"least": 1, "typical": 2, "most": 4}


def test_a_span_out_of_order_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="least first, and not 2, 1, 3"):
        Span(2, 1, 3)


def test_counts_are_put_together_and_summed_by_name() -> None:
    first = spans_of({"sample": 1}, {"sample": 2}, {"sample": 3, "logprobs": 1})
    assert first == {"logprobs": Span(0, 0, 1), "sample": Span(1, 2, 3)}
    assert summed([first, {"sample": Span.exactly(1)}]) == {"logprobs": Span(0, 0, 1), "sample": Span(2, 3, 4)}
    assert added([Span(1, 2, 3), Span.exactly(1)]) == Span(2, 3, 4)
    assert added([Span(1, 2, 3), None]) is None
