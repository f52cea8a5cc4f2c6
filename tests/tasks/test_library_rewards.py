import importlib.util
import json
import subprocess
import sys

import psutil
import pytest
import pytest_asyncio

from tasks import library_rewards, reasoning
from tasks.data import DataError, DataSource, load
from tasks.examples import Example, example, user
from tasks.python_process import command
from tasks.reasoning import read_task
from tasks.reasoning_entries import pack, unpack
from tasks.rewards import Completion, RewardPool, RewardTerm, check_examples, check_spec, needs_answer, score

in_one_loop = pytest.mark.asyncio(loop_scope="module")

SMALL = {"size": 3, "seed": 1}


def reply(text, item):
    return Completion(item.messages, text, 4, True, item)


def asked(answer):
    return Example("e", user("q"), answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool():
    """One worker for all tests: importing computer algebra is what takes the time."""
    async with RewardPool(workers=1) as pool:
        yield pool


async def scores_of(pool, pairs, term):
    scores = await score([reply(text, item) for text, item in pairs], [term], pool=pool)
    assert not scores.failures
    return scores.total


@in_one_loop
async def test_math_verify_compares_expressions_and_not_their_spelling(pool):
    cases = [
        ("The answer is $\\frac{2}{4}$.", "\\frac12", 1.0),
        ("so \\boxed{0.5}", "1/2", 1.0),
        ("It is 12.", "12", 1.0),
        ("It is 1,234.", "1234", 1.0),
        ("$(x+1)^2$", "x^2 + 2x + 1", 1.0),
        ("$\\{3, 1, 2\\}$", "$\\{1,2,3\\}$", 1.0),
        ("\\boxed{\\sqrt{8}}", "\\boxed{2\\sqrt{2}}", 1.0),
        ("first 12, then 13", "12", 0.0),
        ("$x^2 + 2x$", "x^2 + 2x + 1", 0.0),
        ("no idea", "12", 0.0),
        ("", "12", 0.0),
    ]
    values = await scores_of(pool, [(text, asked(answer)) for text, answer, _ in cases], RewardTerm("math_verify"))
    assert values == [value for *_, value in cases]


@in_one_loop
async def test_an_answer_in_which_math_verify_reads_nothing_is_counted_and_not_called_wrong(pool):
    scores = await score([reply("12", asked("?!")), reply("12", asked(None))], [RewardTerm("math_verify")], pool=pool)
    assert scores.total == [None, None]
    assert scores.failures == {
        "math_verify: math-verify reads no expression in the example's answer": 1,
        "math_verify: the example has no answer": 1,
    }


async def test_an_expression_that_takes_for_ever_costs_its_own_score_only():
    async with RewardPool(workers=1, timeout_s=1.0) as pool:
        completions = [reply(text, asked("12")) for text in ("$9^{9^{9^{9}}} + x$", "12")]
        scores = await score(completions, [RewardTerm("math_verify")], pool=pool)
    assert scores.total == [None, 1.0]
    assert scores.failures == {"math_verify: gave no answer within 1 s": 1}


@pytest.mark.parametrize("name", ["math_verify", "reasoning_gym"])
def test_a_worker_imports_the_library_before_the_first_completions_time_begins(name):
    program = (
        "import sys; from tasks import reward_worker\n"
        f"print(reward_worker._answer({{'load': 'tasks.library_rewards:{name}'}}), {name!r} in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() == "{} True"


async def test_libraries_are_imported_by_workers_and_not_here():
    program = (
        "import asyncio, sys; from tasks.examples import *; from tasks.rewards import *\n"
        "reply = Completion(user('q'), '12', 1, True, Example('e', user('q'), '12'))\n"
        "print(asyncio.run(score([reply], [RewardTerm('math_verify')])).total)\n"
        "print({'math_verify', 'sympy', 'reasoning_gym'} & set(sys.modules))"
    )
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert answer.stdout.split("\n")[:2] == ["[1.0]", "set()"]


@in_one_loop
async def test_a_reasoning_gym_task_scores_replies_to_its_own_entries(pool):
    items = read_task("chain_sum", SMALL)
    values = await scores_of(pool, [(one.answer, one) for one in items], RewardTerm("reasoning_gym"))
    assert values == [1.0, 1.0, 1.0]
    wrong, spaced = await scores_of(
        pool, [("-1", items[0]), (f" {items[0].answer}\n", items[0])], RewardTerm("reasoning_gym")
    )
    assert wrong < 0.1
    assert spaced == 1.0


@in_one_loop
async def test_a_task_whose_answers_are_tuples_scores_a_right_one_as_right(pool):
    items = read_task("rearc", SMALL)
    assert await scores_of(pool, [(items[0].answer, items[0])], RewardTerm("reasoning_gym")) == [1.0]


@in_one_loop
async def test_a_task_scores_with_the_options_that_its_questions_were_made_with(pool):
    exact = {**SMALL, "min_num_decimal_places": 6, "max_num_decimal_places": 6}
    item = read_task("decimal_arithmetic", exact)[0]
    nearly = str(float(item.answer) + 0.0005)
    (strict,) = await scores_of(pool, [(nearly, item)], RewardTerm("reasoning_gym"))
    lenient_item = Example(item.id, item.messages, item.answer, {**item.extra})
    options = {**item.extra["reasoning_gym"]["options"], "min_num_decimal_places": 2, "max_num_decimal_places": 2}
    lenient_item.extra["reasoning_gym"] = {**item.extra["reasoning_gym"], "options": options}
    (lenient,) = await scores_of(pool, [(nearly, lenient_item)], RewardTerm("reasoning_gym"))
    assert strict < lenient == 1.0


@in_one_loop
async def test_a_task_without_one_right_answer_scores_by_its_entry(pool):
    item = read_task("propositional_logic", SMALL)[0]
    assert item.answer is None
    right = item.extra["metadata"]["example_answer"]
    good, bad = await scores_of(pool, [(right, item), ("no", item)], RewardTerm("reasoning_gym"))
    assert bad < good == 1.0


@in_one_loop
async def test_only_what_stands_in_the_last_tag_is_scored_when_a_tag_is_named(pool):
    item = read_task("chain_sum", SMALL)[0]
    term = RewardTerm("reasoning_gym", arguments={"tag": "answer"})
    texts = [
        f"so <answer>\n{item.answer}\n</answer>.",
        f"<answer>1</answer><answer>{item.answer}</answer>",
        item.answer,
    ]
    assert await scores_of(pool, [(text, item) for text in texts], term) == [1.0, 1.0, 0.0]


@in_one_loop
async def test_an_example_that_no_task_made_is_counted(pool):
    scores = await score([reply("12", asked("12"))], [RewardTerm("reasoning_gym")], pool=pool)
    assert scores.failures == {"reasoning_gym: the example is no task of reasoning-gym": 1}


def test_a_reward_that_does_not_fit_the_data_is_refused_before_anything_is_sampled():
    made, other = read_task("chain_sum", SMALL)[0], example(user("q"), id="other")
    check_examples([RewardTerm("reasoning_gym")], [made])
    check_examples([RewardTerm("number")], [other])
    with pytest.raises(ValueError, match="1 of 2 examples come from elsewhere, other for one"):
        check_examples([RewardTerm("number"), RewardTerm("reasoning_gym")], [made, other])


def test_math_verify_needs_answers_and_a_task_does_not():
    assert needs_answer([RewardTerm("math_verify")])
    assert not needs_answer([RewardTerm("reasoning_gym")])


@pytest.mark.parametrize(("name", "extra"), [("math_verify", "math"), ("reasoning_gym", "reasoning")])
def test_without_its_extra_a_reward_says_what_to_install(monkeypatch, name, extra):
    monkeypatch.setattr(library_rewards, "find_spec", lambda module: None)
    with pytest.raises(ValueError, match=rf"'{name}' needs the extra .*pip install 'whitney-pipelines\[{extra}\]'"):
        check_spec([RewardTerm(name)])
    check_spec([RewardTerm("number")])


@pytest.mark.parametrize("tag", ["<answer>", "", 3])
def test_a_tag_that_is_no_name_is_refused(tag):
    with pytest.raises(ValueError, match="a name is needed, without < and >"):
        check_spec([RewardTerm("reasoning_gym", arguments={"tag": tag})])


def test_the_modules_that_are_looked_for_are_the_ones_that_are_imported():
    for library in library_rewards.LIBRARIES.values():
        assert importlib.util.find_spec(library.module)


@pytest.mark.parametrize(
    "value",
    [(1, (2, [3])), {"a": {1: "x", (2, 3): None}}, [], {}, {"(tuple)": [1]}, {"(items)": [["a", 1]], "b": 2.5}, "text"],
)
def test_an_entry_comes_back_from_json_as_it_was(value):
    assert unpack(json.loads(json.dumps(pack(value)))) == value


@pytest.mark.parametrize("task", ["list_functions", "ransom_note"])
def test_a_task_that_goes_through_sets_or_the_global_generator_makes_the_same_entries_in_every_process(task):
    program = f"from tasks.reasoning import read_task; print([one.key for one in read_task({task!r}, {SMALL})])"
    elsewhere = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "99"}
    )
    assert elsewhere.stdout.strip() == str([one.key for one in read_task(task, SMALL)])


def test_a_process_that_fails_is_named_with_what_it_said(monkeypatch):
    monkeypatch.setattr(reasoning, "command", lambda module, *_: command(f"{module}_that_is_not_there"))
    with pytest.raises(DataError, match=r"reasoning-gym:gcd could not be made with .*No module named"):
        read_task("gcd", {"size": 2})


@pytest.mark.parametrize("options", [{"seed": "x"}, {"no_such": 1}])
def test_options_that_a_task_refuses_are_shown(options):
    with pytest.raises(DataError, match=f"reasoning-gym:gcd refused the options .*{next(iter(options))}"):
        read_task("gcd", options)


@pytest.mark.parametrize("task", ["rearc", "graph_color"])
def test_the_metadata_of_tasks_with_tuples_and_numbered_keys_travel_whole(task):
    import reasoning_gym

    items = read_task(task, SMALL)
    for item, entry in zip(items, reasoning_gym.create_dataset(task, **SMALL), strict=True):
        assert unpack(json.loads(json.dumps(item.extra["reasoning_gym"]["metadata"]))) == entry["metadata"]


def test_a_reasoning_gym_source_is_ready_to_be_scored_by_its_task():
    data = load(DataSource("reasoning-gym:chain_sum", reasoning_gym={"size": 40}))
    check_examples([RewardTerm("reasoning_gym")], [*data.train, *data.heldout])


async def test_soft_overlong_is_a_term_like_any_other_and_starts_no_process():
    before = psutil.Process().children()
    term = RewardTerm("soft_overlong", arguments={"max_length": 100, "cache": 20})
    completions = [Completion(user("q"), "x", tokens, True, asked("1")) for tokens in (79, 80, 90, 100, 101)]
    scores = await score(completions, [RewardTerm("length", 0.0, arguments={"target": 1}), term])
    assert scores.by_function["soft_overlong"] == scores.total == [0.0, 0.0, -0.5, -1.0, -1.0]
    assert psutil.Process().children() == before


@pytest.mark.parametrize("arguments", [{"max_length": 10, "cache": 11}, {"max_length": 10.5, "cache": 1}])
def test_a_soft_overlong_term_that_could_not_be_computed_is_refused(arguments):
    with pytest.raises(ValueError, match="1 ≤ cache ≤ max_length"):
        check_spec([RewardTerm("soft_overlong", arguments=arguments)])
