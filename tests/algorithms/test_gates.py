"""Gates: what can be written, what passes, and what a person reads of one that does not."""

from __future__ import annotations

import pytest

from algorithms.gates import Gate, Metric, judge, parse_gate
from algorithms.readings import Reading, reading

ACCURACY = Metric(None, "eval", "accuracy")


def read(**values: float | tuple[float, tuple[float, float]]) -> object:
    """A reader of numbers by "stage__when__name", or "when__name" of the gate's own stage."""

    def find(metric: Metric) -> Reading | None:
        key = "__".join(part for part in (metric.stage, metric.when, metric.name) if part)
        value = values.get(key)
        return None if value is None else Reading(*value) if isinstance(value, tuple) else Reading(value)

    return find


@pytest.mark.parametrize(
    ("text", "gate"),
    [
        ("eval.accuracy >= 0.8", Gate(ACCURACY, ">=", 1.0, 0.8)),
        ("  before.loss<2 ", Gate(Metric(None, "before", "loss"), "<", 1.0, 2.0)),
        ("eval.margin > -1e-3", Gate(Metric(None, "eval", "margin"), ">", 1.0, -0.001)),
        ("eval.pass@4 == 1.", Gate(Metric(None, "eval", "pass@4"), "==", 1.0, 1.0)),
        ("eval.accuracy > before.accuracy", Gate(ACCURACY, ">", 1.0, Metric(None, "before", "accuracy"))),
        ("eval.accuracy >= 0.9 * rl.eval.accuracy", Gate(ACCURACY, ">=", 0.9, Metric("rl", "eval", "accuracy"))),
        ("s-1.eval.loss <= .5*eval.loss", Gate(Metric("s-1", "eval", "loss"), "<=", 0.5, Metric(None, "eval", "loss"))),
    ],
)
def test_a_gate_is_read_as_it_is_written(text: str, gate: Gate) -> None:
    assert parse_gate(text) == gate


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "eval.accurcy >= 1",
            "no evaluation measures 'accurcy'; did you mean 'accuracy'? known: accuracy, greedy_accuracy",
        ),
        ("eval.loss@4 >= 1", "no evaluation measures 'loss@4'"),
        ("accuracy >= 1", "write METRIC >= NUMBER"),
        ("eval.accuracy => 1", "write METRIC >= NUMBER"),
        ("0.8 <= eval.accuracy", "write METRIC >= NUMBER"),
        ("eval.accuracy >= 80 %", "write METRIC >= NUMBER"),
        ("eval.accuracy >= 0.9 rl.eval.accuracy", "write METRIC >= NUMBER"),
        ("eval.accuracy >= 0.5 and eval.loss < 1", "write METRIC >= NUMBER"),
        ("eval.pass@0 > 0", "write METRIC >= NUMBER"),
        ("", "write METRIC >= NUMBER"),
    ],
)
def test_what_is_no_gate_is_refused_with_the_way_to_write_one(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse_gate(text)
    assert told in str(refused.value)


@pytest.mark.parametrize(
    ("relation", "below", "at", "above"),
    [
        (">=", False, True, True),
        (">", False, False, True),
        ("<=", True, True, False),
        ("<", True, False, False),
        ("==", False, True, False),
    ],
)
def test_each_relation_holds_where_it_should(relation: str, below: bool, at: bool, above: bool) -> None:
    gate = parse_gate(f"eval.accuracy {relation} 0.5")
    assert [judge(gate, read(eval__accuracy=value)).passed for value in (0.25, 0.5, 0.75)] == [below, at, above]


def test_a_verdict_shows_the_value_its_interval_and_the_bound() -> None:
    verdict = judge(parse_gate("eval.accuracy >= 0.8"), read(eval__accuracy=(0.5417, (0.4, 0.68))))
    assert verdict.message == "eval.accuracy = 54.17% [95%: 40, 68] is not >= 80%"
    assert not verdict.passed


def test_a_student_is_held_to_a_share_of_what_its_teacher_has() -> None:
    gate = parse_gate("eval.accuracy >= 0.9 * rl.eval.accuracy")
    kept = judge(gate, read(eval__accuracy=0.75, rl__eval__accuracy=(0.8, (0.7, 0.875))))
    assert kept.passed
    assert kept.message == "eval.accuracy = 75% is >= 72% = 0.9 * rl.eval.accuracy (80% [95%: 70, 87.5])"
    assert not judge(gate, read(eval__accuracy=0.7, rl__eval__accuracy=0.8)).passed


def test_a_bound_that_any_share_keeps_is_said_to_be_one_and_a_loss_is_no_share() -> None:
    gate = parse_gate("eval.accuracy >= 0.9 * rl.eval.accuracy")
    verdict = judge(gate, read(eval__accuracy=0.0, rl__eval__accuracy=0.0))
    assert verdict.passed
    assert verdict.message.endswith(" is >= 0% = 0.9 * rl.eval.accuracy (0%), as any share is: it says nothing")
    loss = judge(parse_gate("eval.loss > -1"), read(eval__loss=(2.34567, (2.1, 2.6))))
    assert loss.message == "eval.loss = 2.346 [95%: 2.1, 2.6] is > -1"


def test_what_was_not_measured_lets_nothing_through() -> None:
    gate = parse_gate("eval.loss < 1e9")
    assert judge(gate, read()) == judge(gate, read(eval__accuracy=1.0))
    assert judge(gate, read()).message == "eval.loss was not measured"
    assert not judge(parse_gate("eval.loss < before.loss"), read(eval__loss=1.0)).passed


def test_numbers_are_found_in_an_evaluations_record() -> None:
    record = {
        "accuracy": 0.5,
        "loss": None,
        "pass_at": {"pass@4": 0.75},
        "intervals": {"accuracy": [0.25, 0.75], "pass@4": (0.5, 0.9)},
    }
    assert reading(record, "accuracy") == Reading(0.5, (0.25, 0.75))
    assert reading(record, "pass@4") == Reading(0.75, (0.5, 0.9))
    assert reading(record, "pass@8") is None
    assert reading(record, "loss") is None
    assert reading(None, "accuracy") is None
    assert reading({"accuracy": 0.5}, "accuracy") == Reading(0.5), "an older record has no intervals"
