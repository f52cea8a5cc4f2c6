import sys
from collections import Counter

import psutil
import pytest

import models
from tasks.examples import DataError, example, user
from tasks.feedback import SIBLING_INTRODUCTION, FeedbackSource, check_feedback, feedback_for, resolve
from tasks.rendering import Renderer
from tasks.rewards import RewardPool, RewardTerm
from tasks.scoring import Group

CRITICS = '''
import asyncio, os, time

def critic(completion, reward):
    """What the attempt says happens."""
    match completion.text:
        case "raise": raise RuntimeError("secret words")
        case "number": return 3
        case "nothing": return None
        case "blank": return "  "
        case "sleep": time.sleep(60)
        case "die": os._exit(3)
    return f"{completion.text} for {completion.example.answer}: {reward}"

async def asynchronous(completion, *, reward, tone="gently"):
    await asyncio.sleep(0)
    return f"{tone} {completion.text}"

def without_reward(completion):
    return "x"
'''


@pytest.fixture
def critics(tmp_path, monkeypatch):
    (tmp_path / "critics.py").write_text(CRITICS)
    monkeypatch.syspath_prepend(tmp_path)
    yield
    sys.modules.pop("critics", None)


@pytest.fixture(scope="module")
def renderer():
    return Renderer(models.resolve("tiny"), "chatml")


def group_of(renderer, texts, rewards, *, answer="12", cut=(), **extra):
    item = example(user("what is 7 + 5?"), answer, extra=extra)
    sequences = [
        {"tokens": renderer.completion_tokens(text), "stop_reason": "length" if place in cut else "stop"}
        for place, text in enumerate(texts)
    ]
    group = Group(item, renderer.prompt_tokens(item), sequences)
    group.rewards = list(rewards)
    return group


async def feedback_on(renderer, texts, rewards, source, **fields):
    missing = Counter()
    async with RewardPool(workers=1, timeout_s=2.0) as pool:
        group = group_of(renderer, texts, rewards, **fields)
        (said,) = await feedback_for([group], source, renderer=renderer, pool=pool, missing=missing)
    return said, missing


async def test_the_verifier_says_which_number_was_read_and_whether_it_is_right(renderer):
    source = resolve("verifier", reward=RewardTerm("number"))
    said, missing = await feedback_on(renderer, ["it is 12", "7 + 5 = 13", "hm"], [1.0, 0.0, 0.0], source)
    assert said == [
        "The last number in the attempt, 12, was read as its answer: it is right.",
        "The last number in the attempt, 13, was read as its answer: it is wrong.",
        "No number was found in the attempt: it is wrong.",
    ]
    assert not missing


@pytest.mark.parametrize(
    ("function", "opening"),
    [("exact", "The whole attempt was read as its answer"), ("graders:mine", "The attempt was graded")],
)
async def test_the_verifier_says_no_more_about_the_reading_than_it_knows(renderer, function, opening):
    source = resolve("verifier", reward=RewardTerm(function))
    said, _ = await feedback_on(renderer, ["it is 13"], [0.0], source)
    assert said == [f"{opening}: it is wrong."]


async def test_the_verifier_tells_a_part_from_nothing_and_a_reply_that_was_cut_off(renderer):
    said, _ = await feedback_on(renderer, ["a", "b"], [0.25, -1.0], "verifier", cut=[1])
    assert said == [
        "The attempt was graded: it is only partly right, and scored 0.25 where 1 is needed.",
        "The attempt was graded: it is wrong. It did not come to an end within its limit of length.",
    ]


@pytest.mark.parametrize("reward", [RewardTerm("number"), RewardTerm("exact"), None])
async def test_the_verifier_does_not_give_the_answer_away_unless_it_is_asked_to(renderer, reward):
    texts, rewards = ["it is 7", "no idea", "", "12 or 9"], [0.0, 0.5, 0.0, None]
    quiet, _ = await feedback_on(renderer, texts, rewards, resolve("verifier", reward=reward))
    telling, _ = await feedback_on(renderer, texts, rewards, resolve("verifier:reveal", reward=reward))
    assert not any("12" in sentence for sentence in quiet[:3])
    assert all(sentence.endswith("The right answer is 12.") for sentence in telling[:3])


async def test_an_attempt_without_a_reward_has_no_verdict_and_is_counted(renderer):
    said, missing = await feedback_on(renderer, ["a", "b"], [None, 0.0], "verifier")
    assert said[0] is None
    assert said[1]
    assert missing == {"the attempt could not be scored": 1}


async def test_a_sibling_is_another_attempt_of_the_group_that_succeeded(renderer):
    texts, rewards = ["twelve", "13", "it is 12", ""], [1.0, 0.0, 1.0, 1.0]
    said, missing = await feedback_on(renderer, texts, rewards, "sibling")
    assert [text.removeprefix(SIBLING_INTRODUCTION) for text in said] == ["it is 12", "twelve", "twelve", "twelve"]
    assert not missing


async def test_of_several_siblings_the_best_is_shown_and_of_equals_one_that_ended_by_itself(renderer):
    said, _ = await feedback_on(renderer, ["x", "a", "b", "c"], [0.0, 1.0, 1.0, 1.0], "sibling", cut=[1])
    assert said[0] == SIBLING_INTRODUCTION + "b"
    said, _ = await feedback_on(renderer, ["x", "a", "b"], [0.0, 1.0, 2.0], "sibling", cut=[2])
    assert said[0] == SIBLING_INTRODUCTION + "b"


@pytest.mark.parametrize("rewards", [[0.0, 0.9], [None, None], [0.0, -1.0]])
async def test_without_a_successful_sibling_there_is_no_feedback_and_that_is_counted(renderer, rewards):
    said, missing = await feedback_on(renderer, ["a", "b"], rewards, "sibling")
    assert (said, missing) == ([None, None], {"no other attempt of the group succeeded": 2})


async def test_the_only_success_of_a_group_has_no_sibling_to_learn_from(renderer):
    said, missing = await feedback_on(renderer, ["a", "b"], [0.6, 0.0], resolve("sibling", success=0.5))
    assert said == [None, SIBLING_INTRODUCTION + "a"]
    assert missing == {"no other attempt of the group succeeded": 1}


async def test_a_field_of_the_data_and_a_constant_are_taken_as_they_are(renderer):
    assert (await feedback_on(renderer, ["a", "b"], [0.0, 1.0], "field:hint", hint="carry"))[0] == ["carry", "carry"]
    assert (await feedback_on(renderer, ["a"], [0.0], "constant:Try again: harder."))[0] == ["Try again: harder."]
    said, missing = await feedback_on(renderer, ["a"], [0.0], "field:hint", hint=3)
    assert (said, missing) == ([None], {"the example has no text in the field 'hint'": 1})


async def test_a_users_function_sees_the_attempt_and_its_reward(renderer, critics):
    said, _ = await feedback_on(renderer, ["a", "b"], [0.5, None], "critics:critic")
    assert said == ["a for 12: 0.5", "b for 12: None"]


async def test_a_users_function_may_be_asynchronous(renderer, critics):
    assert (await feedback_on(renderer, ["a"], [0.0], "critics:asynchronous"))[0] == ["gently a"]


async def test_whatever_a_users_function_does_about_one_attempt_the_others_have_their_feedback(renderer, critics):
    texts = ["a", "raise", "number", "nothing", "blank", "sleep", "die", "b"]
    said, missing = await feedback_on(renderer, texts, [0.0] * 8, "critics:critic")
    assert said == ["a for 12: 0.0", *[None] * 6, "b for 12: 0.0"]
    reasons = Counter({reason.removeprefix("critics:critic: "): count for reason, count in missing.items()})
    raised = [reason for reason in reasons if reason.startswith("raised RuntimeError at critics.py:")]
    assert len(raised) == 1
    assert "secret" not in raised[0]
    del reasons[raised[0]]
    assert reasons == {
        "returned a int, not text": 1,
        "had nothing to say": 2,
        "gave no answer within 2 s": 1,
        "ended its process": 1,
    }


async def test_groups_keep_their_feedback_apart(renderer, critics):
    groups = [group_of(renderer, ["a", "b"], [0.0, 1.0]), group_of(renderer, ["c"], [1.0], answer="9")]
    async with RewardPool(workers=2) as pool:
        said = await feedback_for(groups, "critics:critic", renderer=renderer, pool=pool)
        assert said == [["a for 12: 0.0", "b for 12: 1.0"], ["c for 9: 1.0"]]
        siblings = await feedback_for(groups, "sibling", renderer=renderer, pool=pool)
        assert siblings == [[SIBLING_INTRODUCTION + "b", None], [None]]


async def test_a_built_in_source_starts_no_process(renderer):
    before = psutil.Process().children()
    async with RewardPool() as pool:
        for source in ("verifier", "sibling", "constant:x"):
            await feedback_for([group_of(renderer, ["a"], [1.0])], source, renderer=renderer, pool=pool)
        assert psutil.Process().children() == before


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("verifer", "'verifer' is unknown: did you mean 'verifier'"),
        ("verifier:tell", "'verifier:tell' is unknown: did you mean 'verifier:reveal'"),
        ("sibling:best", "'sibling:best' is unknown"),
        ("", "'' is unknown"),
        ("field:", "after the colon stands a field"),
        ("field", "after the colon stands a field"),
        ("constant: ", "after the colon stands the text"),
        ("no_such_module:f", "cannot be imported: ModuleNotFoundError"),
        ("critics:no_such", "module 'critics' has no function 'no_such'"),
        ("critics:without_reward", r"is called as f\(completion, reward=…\): got an unexpected keyword"),
    ],
)
def test_a_source_that_cannot_be_used_is_refused_by_name(critics, spec, said):
    with pytest.raises(ValueError, match=said):
        resolve(spec)


def test_a_source_about_which_the_data_say_nothing_is_refused():
    plain, hinted = example(user("q"), "a"), example(user("q"), extra={"hint": "h"})
    check_feedback(resolve("field:hint"), [plain, hinted])
    check_feedback(resolve("verifier"), [hinted])
    with pytest.raises(DataError, match="not one of 1 examples has text in the field 'hint'"):
        check_feedback(resolve("field:hint"), [plain])
    with pytest.raises(DataError, match="in the field 'answer'"):
        check_feedback(resolve("verifier:reveal"), [hinted])


def test_a_source_knows_from_which_reward_on_an_attempt_is_right():
    assert resolve("verifier", success=0.5) == FeedbackSource("verifier", success=0.5)
