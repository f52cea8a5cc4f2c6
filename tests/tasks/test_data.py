import json
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.data import DataError, DataSource, batch, fingerprint, load, split
from tasks.examples import example, preference, user
from tasks.jsonl import read_jsonl


def write(path, *rows):
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return path


def pair_of(item):
    words = item.messages[0]["content"].removesuffix("?").split()
    return tuple(sorted((int(words[2]), int(words[4]))))


@pytest.mark.parametrize(
    ("name", "train_pairs", "heldout_pairs"), [("addition-1digit", 33, 12), ("addition-2digit", 3995, 100)]
)
def test_addition_is_split_by_unordered_pair_so_that_no_mirrored_sum_leaks(name, train_pairs, heldout_pairs):
    data = load(DataSource(name))
    train, heldout = {pair_of(item) for item in data.train}, {pair_of(item) for item in data.heldout}
    assert (len(train), len(heldout)) == (train_pairs, heldout_pairs)
    assert not train & heldout
    assert all(item.answer == str(sum(pair_of(item))) for item in (*data.train, *data.heldout))


def test_one_digit_addition_holds_every_ordered_pair_exactly_once():
    data = load(DataSource("addition-1digit"))
    questions = {item.messages[0]["content"] for item in (*data.train, *data.heldout)}
    assert questions == {f"What is {a} + {b}?" for a in range(1, 10) for b in range(1, 10)}
    assert len(data.train) + len(data.heldout) == 81


def test_capitals_are_split_by_country():
    data = load(DataSource("capitals"))
    assert not {item.key for item in data.train} & {item.key for item in data.heldout}
    assert len(data.heldout) == (len(data.train) + len(data.heldout)) // 4
    answers = {item.messages[0]["content"]: item.answer for item in (*data.train, *data.heldout)}
    assert answers["What is the capital of France?"] == "Paris"


@pytest.mark.parametrize("name", ["addition-1digit", "capitals"])
def test_a_shipped_set_is_the_same_in_every_process(name):
    program = (
        f"from tasks.data import *; d = load(DataSource({name!r}));"
        "print(d.fingerprint, [e.id for e in batch(d, 3, 5, 1)])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "99"}
    )
    data = load(DataSource(name))
    assert answer.stdout.strip() == f"{data.fingerprint} {[item.id for item in batch(data, 3, 5, 1)]}"


def test_a_file_of_prompts_keeps_what_else_its_lines_say(tmp_path):
    path = write(tmp_path / "d.jsonl", {"prompt": "2+2", "answer": 4, "id": 7, "level": "easy"}, "", {"prompt": "hi"})
    first, second = read_jsonl(path)
    assert (first.messages, first.answer, first.id, first.extra) == (user("2+2"), "4", "7", {"level": "easy"})
    assert (second.answer, second.extra) == (None, {})


def test_a_file_of_conversations_may_end_with_the_reply(tmp_path):
    system, question, reply = ({"role": r, "content": r.upper()} for r in ("system", "user", "assistant"))
    (item,) = read_jsonl(write(tmp_path / "d.jsonl", {"messages": [system, question, reply]}))
    assert (item.messages, item.answer) == ((system, question), "ASSISTANT")


def test_a_line_separator_inside_a_string_is_not_the_end_of_a_line(tmp_path):
    path = tmp_path / "d.jsonl"
    path.write_text('{"prompt": "a\u2028b"}\n', encoding="utf-8")
    assert read_jsonl(path)[0].messages[0]["content"] == "a\u2028b"


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("{", "not valid JSON, from column 2 on: Expecting property name"),
        ("[1]", "must be a JSON object, this is a list"),
        ({"answer": "4"}, "exactly one of `prompt`"),
        ({"prompt": "a", "messages": []}, "exactly one of `prompt`"),
        ({"prompt": "  "}, "prompt must be text that is not empty"),
        ({"prompt": 3}, "prompt must be text"),
        ({"messages": []}, "non-empty list"),
        ({"messages": [{"role": "robot", "content": "a"}]}, r"messages\[0\] needs a role"),
        ({"messages": [{"role": "user"}]}, r"messages\[0\].content must be text"),
        ({"messages": [{"role": "assistant", "content": "a"}]}, "nothing but a reply"),
        ({"messages": [*user("q"), {"role": "assistant", "content": "a"}], "answer": "b"}, "keep one of the two"),
        ({"prompt": "a", "answer": [1]}, "answer must be text or a number, this is a list"),
    ],
)
def test_a_malformed_line_is_named_with_its_file_and_number(tmp_path, row, said):
    path = write(tmp_path / "d.jsonl", {"prompt": "fine"}, row)
    with pytest.raises(DataError, match=rf"d\.jsonl:2: .*{said}"):
        read_jsonl(path)


def test_an_empty_file_and_a_file_that_is_not_there_are_refused(tmp_path):
    with pytest.raises(DataError, match="holds no example"):
        load(DataSource(str(write(tmp_path / "empty.jsonl", ""))))
    with pytest.raises(DataError, match="cannot be read"):
        load(DataSource("addition-1digit", heldout=tmp_path / "none.jsonl"))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("adition-1digit", "did you mean 'addition-1digit'"),
        ("reasoning-gym:chain_summ", "did you mean 'chain_sum'"),
    ],
)
def test_a_misspelt_source_is_met_with_the_near_name(source, said):
    with pytest.raises(DataError, match=said):
        load(DataSource(source))


def test_a_reasoning_gym_task_becomes_examples_split_by_question():
    options = {"size": 80, "seed": 1, "min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}
    data = load(DataSource("reasoning-gym:chain_sum", heldout_fraction=0.25, reasoning_gym=options))
    assert len(data.train) + len(data.heldout) == 80
    assert not {item.key for item in data.train} & {item.key for item in data.heldout}  # it does repeat questions
    assert all(item.answer and item.extra["metadata"]["source_dataset"] == "chain_sum" for item in data.train)


def test_options_a_reasoning_gym_task_refuses_are_reported_with_the_task():
    with pytest.raises(DataError, match=r"chain_sum refused the options .*'no_such'"):
        load(DataSource("reasoning-gym:chain_sum", reasoning_gym={"no_such": 1}))


def test_without_the_extra_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(DataError, match=r"pip install 'whitney-pipelines\[reasoning\]'"):
        load(DataSource("reasoning-gym:chain_sum"))


def test_a_heldout_file_is_taken_as_it_is_and_the_whole_source_is_trained_on(tmp_path):
    heldout = write(tmp_path / "h.jsonl", {"prompt": "What is 10 + 1?", "answer": "11"})
    data = load(DataSource("addition-1digit", heldout=heldout))
    assert (len(data.train), len(data.heldout)) == (81, 1)
    assert "h.jsonl" in data.description


def test_a_question_on_both_sides_is_an_error_and_if_allowed_a_warning(tmp_path):
    train = write(tmp_path / "t.jsonl", {"prompt": "a  b"}, {"prompt": "c"})
    heldout = write(tmp_path / "h.jsonl", {"prompt": "a b", "answer": "another"}, {"prompt": "d"})
    with pytest.raises(DataError, match="1 of 2 held-out questions are also trained on"):
        load(DataSource(str(train), heldout=heldout))
    data = load(DataSource(str(train), heldout=heldout, allow_overlap=True))
    assert data.warnings == (f"1 of 2 held-out questions are also trained on, {data.heldout[0].id} for one",)


def test_a_key_of_the_file_keeps_questions_of_one_key_together(tmp_path):
    rows = [{"prompt": f"question {i}", "key": f"k{i // 10}"} for i in range(200)]
    data = load(DataSource(str(write(tmp_path / "d.jsonl", *rows)), heldout_fraction=0.3))
    assert not {item.key for item in data.train} & {item.key for item in data.heldout}
    assert 20 <= len(data.heldout) <= 100


def test_adding_examples_moves_none_of_the_others_to_the_other_side():
    examples = [example(user(f"question {i}")) for i in range(300)]
    few_train, few_heldout = split(examples[:200], 0.2)
    train, heldout = split(examples, 0.2)
    assert {item.id for item in few_train} <= {item.id for item in train}
    assert {item.id for item in few_heldout} <= {item.id for item in heldout}
    assert 30 <= len(heldout) <= 90


@pytest.mark.parametrize(("fraction", "said"), [(1.0, "it must be"), (-0.1, "it must be"), (1e-9, "0 held out")])
def test_a_fraction_that_leaves_a_side_empty_is_refused(fraction, said):
    with pytest.raises(DataError, match=said):
        split([example(user("a")), example(user("b"))], fraction)


def test_nothing_is_held_out_when_nothing_is_asked_for(tmp_path):
    data = load(DataSource(str(write(tmp_path / "d.jsonl", {"prompt": "a"})), heldout_fraction=0.0))
    assert (len(data.train), data.heldout) == (1, ())


def test_the_limit_shortens_what_is_trained_on_and_not_what_is_held_out():
    data = load(DataSource("addition-1digit", limit=5))
    assert (len(data.train), len(data.heldout)) == (5, 22)


def test_the_fingerprint_of_the_same_data_is_the_same_in_every_version_for_runs_have_it_on_record():
    plain = example(
        user("Größe 7\u2028 + 5?"), "12", extra={"level": 3, "tags": ["a", {"b": None}], "p": 0.5}, id="one"
    )
    pair = preference(example(({"role": "system", "content": "s"}, *user("who?"))), "I", "you")
    assert fingerprint([plain, pair], [pair]) == "8a18bea650fc9ccfff9e92363bc1dd5985710388e648267ba5388eb8ddcd88ae"
    assert fingerprint([], []) == "a683096011db3975a1e401e33b0047d1f2677a11efe85ef12806f016ae039795"


def test_the_fingerprint_sees_every_field_and_which_side_an_example_is_on():
    one, other = example(user("a"), "1"), example(user("a"), "2")
    prints = {fingerprint([one], []), fingerprint([], [one]), fingerprint([other], []), fingerprint([one], [other])}
    assert len(prints) == 4


@settings(deadline=None)
@given(size=st.integers(1, 90), cycles=st.integers(1, 6), seed=st.integers(0, 5))
def test_every_example_is_used_once_before_any_is_used_again(size, cycles, seed):
    data = load(DataSource("addition-1digit"))
    used = [item.id for cycle in range(cycles) for item in batch(data, cycle, size, seed)]
    count = len(data.train)
    for start in range(0, len(used), count):
        epoch = used[start : start + count]
        assert len(set(epoch)) == len(epoch)


def test_epochs_and_seeds_have_orders_of_their_own():
    data = load(DataSource("addition-1digit"))
    orders = {
        tuple(item.id for item in batch(data, epoch, len(data.train), seed)) for epoch in (0, 1) for seed in (0, 1)
    }
    assert len(orders) == 4


@pytest.mark.parametrize(("cycle", "size"), [(-1, 4), (0, 0)])
def test_a_batch_that_makes_no_sense_is_refused(cycle, size):
    with pytest.raises(ValueError, match=f"cycle is {cycle} and size is {size}"):
        batch(load(DataSource("addition-1digit")), cycle, size, 0)
