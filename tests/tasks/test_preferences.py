import json

import pytest

import models
from tasks.data import DataError, DataSource, batch, fingerprint
from tasks.data import load as load_examples
from tasks.examples import example, preference, user
from tasks.preferences import load, preferences, read_preferences
from tasks.rendering import CHATML, Renderer, RenderingError

QUESTION, REPLY = {"role": "user", "content": "2+2"}, {"role": "assistant", "content": "4"}


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def pair(name, **fields):
    return {"prompt": f"question {name}", "chosen": "good", "rejected": "bad", "id": name, **fields}


def half(role, number, **fields):
    return {"id": f"p{number}", "prompt": f"question {number}", "role": role, "completion": f"{role} {number}"} | fields


def test_a_line_holds_a_prompt_and_two_replies_and_keeps_what_else_it_says(tmp_path):
    (item,) = read_preferences(write(tmp_path / "p.jsonl", pair("a", answer=4, level="easy", key="k")))
    assert (item.id, item.messages, item.answer) == ("a", user("question a"), "4")
    assert (item.chosen, item.rejected, item.extra, item.key) == ("good", "bad", {"level": "easy"}, "k")


@pytest.mark.parametrize(
    "row",
    [
        {"prompt": "2+2", "chosen": [REPLY], "rejected": "5"},
        {"messages": [QUESTION], "chosen": "4", "rejected": "5"},
        {"chosen": [QUESTION, REPLY], "rejected": [QUESTION, {**REPLY, "content": "5"}]},
        {"prompt": "2+2", "chosen": [QUESTION, REPLY], "rejected": "5"},
    ],
)
def test_a_reply_may_be_text_or_messages_with_or_without_the_conversation_before_it(tmp_path, row):
    (item,) = read_preferences(write(tmp_path / "p.jsonl", row))
    assert (item.messages, item.chosen, item.rejected) == ((QUESTION,), "4", "5")


def test_lines_are_paired_by_id_and_a_missing_one_costs_its_own_pair_only(tmp_path):
    rows = [half("chosen", 1), half("rejected", 1), half("chosen", 2), half("chosen", 3), half("rejected", 3)]
    notes = []
    items = read_preferences(write(tmp_path / "p.jsonl", *rows), notes)
    assert [(item.id, item.chosen, item.rejected) for item in items] == [
        ("p1", "chosen 1", "rejected 1"),
        ("p3", "chosen 3", "rejected 3"),
    ]
    assert notes == ["p.jsonl: left out 1 replies without the other reply of their id (line 3 for one)"]


def test_the_two_lines_of_a_pair_may_stand_anywhere_and_in_either_order(tmp_path):
    rows = [half("rejected", 1), half("chosen", 2), pair("whole"), half("rejected", 2), half("chosen", 1)]
    items = read_preferences(write(tmp_path / "p.jsonl", *rows))
    assert [(item.id, item.chosen) for item in items] == [("whole", "good"), ("p2", "chosen 2"), ("p1", "chosen 1")]


def test_a_pair_whose_replies_are_the_same_is_left_out_and_said_so_by_the_data_set(tmp_path):
    path = write(tmp_path / "p.jsonl", pair("a"), pair("b", rejected="good"))
    data = load(DataSource(str(path), heldout_fraction=0.0))
    assert [item.id for item in data.train] == ["a"]
    assert data.warnings == ("p.jsonl: left out 1 pairs whose two replies are the same (line 2 for one)",)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt": "q", "chosen": "a"}, "rejected must be text that is not empty"),
        ({"prompt": "q", "chosen": "a", "rejected": " "}, "rejected must be text that is not empty"),
        ({"chosen": "a", "rejected": "b"}, "exactly one of `prompt`"),
        ({"prompt": "q", "chosen": [], "rejected": "b"}, "`chosen` must be a non-empty list"),
        ({"prompt": "q", "chosen": [QUESTION], "rejected": "b"}, "`chosen` must end with the assistant's message"),
        ({"prompt": "another", "chosen": [QUESTION, REPLY], "rejected": "b"}, "replies to one conversation"),
        ({"chosen": [QUESTION, REPLY], "rejected": [*user("3+3"), REPLY]}, "replies to one conversation"),
        ({"prompt": "q", "answer": "a"}, "a line needs `chosen` and `rejected`, or `id`"),
        (half("liked", 1), "a `role`, which is chosen or rejected, not 'liked'"),
        ({**half("chosen", 1), "id": None}, "needs the `id`"),
        ({**half("chosen", 1), "completion": None}, "completion must be text"),
        ([1], "must be a JSON object"),
        ("{", "Expecting property name"),
        (half("chosen", 0, completion="another"), "a second chosen reply of id 'p0', after line 1"),
        (half("rejected", 0, prompt="another"), "id 'p0' answers another prompt than in line 1"),
    ],
)
def test_a_malformed_line_is_named_with_its_file_and_number(tmp_path, row, said):
    path = write(tmp_path / "p.jsonl", half("chosen", 0), row)
    with pytest.raises(DataError, match=rf"p\.jsonl:2: .*{said}"):
        read_preferences(path)


def test_a_third_line_of_a_pair_is_refused(tmp_path):
    path = write(tmp_path / "p.jsonl", half("chosen", 1), half("rejected", 1), half("rejected", 1))
    with pytest.raises(DataError, match=r"p\.jsonl:3: id 'p1' was a whole pair in line 2 already"):
        read_preferences(path)


def test_a_file_without_a_whole_pair_says_what_was_left_out(tmp_path):
    with pytest.raises(DataError, match=r"holds no whole pair: .*2 replies without the other"):
        read_preferences(write(tmp_path / "p.jsonl", half("chosen", 1), half("rejected", 2)))


@pytest.mark.parametrize("source", ["addition-1digit", "reasoning-gym:chain_sum"])
def test_a_source_of_plain_examples_is_refused_with_what_to_name_instead(source):
    with pytest.raises(DataError, match=f"{source} holds no preferences"):
        load(DataSource(source))


def test_pairs_of_one_question_stay_on_one_side_of_the_split(tmp_path):
    rows = [pair(f"p{i}", prompt=f"question {i // 4}", rejected=f"bad {i}") for i in range(400)]
    data = load(DataSource(str(write(tmp_path / "p.jsonl", *rows)), heldout_fraction=0.3))
    assert not {item.key for item in data.train} & {item.key for item in data.heldout}
    assert 60 <= len(data.heldout) <= 180


def test_a_heldout_file_is_read_as_preferences_too(tmp_path):
    train, heldout = write(tmp_path / "t.jsonl", pair("a")), write(tmp_path / "h.jsonl", pair("b"))
    data = load(DataSource(str(train), heldout=heldout))
    assert [item.rejected for item in preferences(data.heldout)] == ["bad"]


def test_the_fingerprint_sees_the_replies():
    item = example(user("q"))
    assert len({fingerprint([preference(item, *replies)]) for replies in ("ab", "ac", "cb")}) == 3


def test_shipped_preferences_put_the_right_sum_before_a_wrong_one_and_before_rambling():
    data = load(DataSource("addition-1digit-preferences"))
    assert (len(data.train), len(data.heldout)) == (118, 44)
    for item in preferences((*data.train, *data.heldout)):
        a, b = item.messages[0]["content"].removeprefix("What is ").removesuffix("?").split(" + ")
        right = int(a) + int(b)
        assert item.chosen == item.answer == str(right)
        if item.id.endswith("/wrong"):
            assert 1 <= abs(int(item.rejected) - right) <= 3
        else:
            assert len(item.rejected) > 90
            assert str(right) not in item.rejected.replace(a, "").replace(b, "")


def test_shipped_preferences_hold_out_the_questions_that_addition_holds_out():
    pairs, sums = load(DataSource("addition-1digit-preferences")), load_examples(DataSource("addition-1digit"))
    assert {item.key for item in pairs.heldout} == {item.key for item in sums.heldout}
    assert {item.key for item in pairs.train} == {item.key for item in sums.train}


def test_shipped_preferences_have_errors_and_rambling_of_every_kind():
    data = load(DataSource("addition-1digit-preferences"))
    errors = {int(p.rejected) - int(p.chosen) for p in preferences(data.train) if p.id.endswith("/wrong")}
    openings = {p.rejected[:12] for p in preferences(data.train) if p.id.endswith("/rambling")}
    assert errors == {-3, -2, -1, 1, 2, 3}
    assert len(openings) == 4


def test_both_replies_of_every_shipped_pair_can_be_rendered_faithfully():
    renderer = Renderer(models.resolve("tiny"), "chatml")
    data = load(DataSource("addition-1digit-preferences"))
    for item in preferences(batch(data, 0, len(data.train), 0)):
        renderer.check_text(item)
        renderer.check(item)


@pytest.mark.parametrize("replies", [("fine", "bad<|im_end|>"), ("bad<|im_end|>", "fine")])
def test_a_special_token_in_either_reply_is_refused(replies):
    renderer = Renderer(models.resolve("tiny"), "chatml")
    item = preference(example(user("q"), id="x"), *replies)
    with pytest.raises(RenderingError, match="example x, a reply holds the special token"):
        renderer.check_text(item)
    with pytest.raises(RenderingError, match="the reply holds the special token"):
        renderer.check(item)


@pytest.mark.parametrize("replies", [("5", " 6"), (" 5", "6")])
def test_a_template_that_would_change_either_reply_is_refused(replies):
    renderer = Renderer(models.resolve("tiny"), CHATML.replace("message['content'] +", "message['content']|trim +"))
    with pytest.raises(RenderingError, match="example x: the reply has other tokens"):
        renderer.check(preference(example(user("q"), id="x"), *replies))
