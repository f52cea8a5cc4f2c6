import asyncio
import math
import sys

import psutil
import pytest
from pydantic import SecretStr

from tasks.examples import Example, user
from tasks.reward_pool import Failed, Job
from tasks.rewards import Completion, RewardPool, RewardTerm, check_spec, needs_answer, score

GRADERS = '''
import asyncio, json, os, re, signal, subprocess, sys, time
from tasks.builtin_rewards import UnscorableError
from tasks.rewards import Completion

def telling(completion):
    match completion.text.split():
        case "environment", name: return os.environ.get(name)
        case "unscorable", text: raise UnscorableError(f"cannot score {text}")
        case "class", text: raise type(f"Error_{text}", (Exception,), {})
    return completion.text

def length_of_text(completion, *, factor=1.0):
    return factor * len(completion.text)

async def asynchronous(completion):
    await asyncio.sleep(0)
    return float(completion.text == completion.example.answer)

def by_text(completion: Completion):
    """What the text says happens."""
    match completion.text:
        case "raise": raise RuntimeError("secret words")
        case "library": return json.loads("{x")
        case "nan": return float("nan")
        case "inf": return float("inf")
        case "text": return "one"
        case "none": return None
        case "exit": sys.exit(3)
        case "die": os._exit(3)
        case "sleep": time.sleep(60)
        case "spin": re.match(r"(a+)+$", "a" * 60 + "b")  # holds the GIL
        case "print": print("noise" * 100_000); return 1.0
        case "read": return float(len(sys.stdin.read()))
        case "bool": return True
    return 0.5

def alarmed(completion):
    """Leaves an alarm behind, and lets one go off, as math graders do."""
    if completion.text == "leave":
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return 1.0
    if completion.text == "wait":
        time.sleep(0.2)
        return 2.0
    def ring(*_): raise TimeoutError
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        time.sleep(60)
    except TimeoutError:
        return 3.0

def spawn(completion):
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    open(completion.text, "w").write(str(child.pid))
    time.sleep(60)

def escape(completion):
    if os.fork() == 0:
        os.setsid()  # out of reach of the kill
        open(completion.text, "w").write(str(os.getpid()))
        time.sleep(600)
        os._exit(0)
    time.sleep(60)

def see_extra(completion):
    assert completion.prompt == ({"role": "user", "content": "q"},)
    assert completion.example.extra == {"level": [1, 2]}
    assert (completion.token_count, completion.finished) == (7, False)
    return 1.0
'''


@pytest.fixture
def graders(tmp_path, monkeypatch):
    (tmp_path / "graders.py").write_text(GRADERS)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    sys.modules.pop("graders", None)


def reply(text, answer="42", *, finished=True, tokens=4):
    return Completion(user("q"), text, tokens, finished, Example("e", user("q"), answer))


async def only(text, term, answer="42", **fields):
    return (await score([reply(text, answer, **fields)], [term])).total[0]


@pytest.mark.parametrize(
    ("text", "answer", "value"),
    [
        ("The answer is 42.", "42", 1.0),
        ("7 + 5 = 12", "12", 1.0),
        ("12 = 7 + 5", "12", 0.0),
        ("It is 1,234,567.", "1234567", 1.0),
        ("1,234.50 dollars", "1234.5", 1.0),
        ("lists 1,2", "2", 1.0),
        ("1,2345", "2345", 1.0),
        ("x = -5", "-5", 1.0),
        ("x = −5", "-5", 1.0),
        ("7-5", "5", 1.0),
        ("(7)-5", "5", 1.0),
        ("+5", "5", 1.0),
        ("0.50", ".5", 1.0),
        ("2e3", "2000", 1.0),
        ("$42", "#### 42", 1.0),
        ("42nd", "42", 1.0),
        ("forty-two", "42", 0.0),
        ("", "42", 0.0),
    ],
)
async def test_number_compares_the_last_number_of_the_reply_exactly(text, answer, value):
    assert await only(text, RewardTerm("number"), answer) == value


async def test_number_may_be_off_by_the_tolerance():
    term = RewardTerm("number", arguments={"tolerance": 0.01})
    assert [await only(text, term, "3.14") for text in ("3.15", "3.13", "3.16")] == [1.0, 1.0, 0.0]


async def test_number_does_not_confuse_a_tenth_with_its_binary_neighbour():
    assert await only("0.3", RewardTerm("number", arguments={"tolerance": 0.1}), "0.4") == 1.0


@pytest.mark.parametrize(
    ("function", "text", "answer", "arguments", "value"),
    [
        ("exact", " 42\n", "42", {}, 1.0),
        ("exact", "42.", "42", {}, 0.0),
        ("exact", "PARIS", "Paris", {}, 0.0),
        ("exact", "PARIS", "Paris", {"ignore_case": True}, 1.0),
        ("contains", "It is Rome.", "Rome", {}, 1.0),
        ("contains", "Romeo", "Rome", {}, 0.0),
        ("contains", "rome", "Rome", {"ignore_case": True}, 1.0),
        ("contains", "a.c", "a.c", {}, 1.0),
        ("contains", "abc", "a.c", {}, 0.0),
        ("regex", "#### 42", "42", {"pattern": r"#### \d+"}, 1.0),
        ("regex", "#### 41", "42", {"pattern": r"#### (?P<answer>\d+)"}, 0.0),
        ("regex", "#### 42", "42", {"pattern": r"#### (?P<answer>\d+)"}, 1.0),
        ("length", "", "42", {"target": 4}, 1.0),
        ("length", "", "42", {"target": 8}, 0.5),
        ("length", "", "42", {"target": 1}, 0.0),
    ],
)
async def test_a_built_in_scores_as_its_first_line_says(function, text, answer, arguments, value):
    assert await only(text, RewardTerm(function, arguments=arguments), answer) == value


async def test_an_example_without_an_answer_is_counted_and_not_called_wrong():
    scores = await score([reply("42", None), reply("42")], [RewardTerm("number")])
    assert scores.total == [None, 1.0]
    assert scores.failures == {"number: the example has no answer": 1}


async def test_terms_are_summed_by_weight_and_kept_apart_for_the_report():
    spec = [RewardTerm("number", 2.0), RewardTerm("length", 0.5, arguments={"target": 8})]
    scores = await score([reply("42"), reply("41")], spec)
    assert scores.total == [2.25, 0.25]
    assert scores.by_function == {"number": [1.0, 0.0], "length": [0.5, 0.5]}


async def test_two_terms_of_one_name_are_both_reported():
    spec = [RewardTerm("length", arguments={"target": target}) for target in (4, 8)]
    assert (await score([reply("")], spec)).by_function == {"length": [1.0], "length#2": [0.5]}


@pytest.mark.parametrize(
    ("text", "finished", "value"), [("42", True, 1.0), ("42", False, 0.8), ("41", True, 0.0), ("41", False, 0.0)]
)
async def test_the_finish_bonus_pays_for_stopping_only_when_the_reply_is_right(text, finished, value):
    assert await only(text, RewardTerm("number", finish_bonus=0.2), finished=finished) == pytest.approx(value)


async def test_a_batch_without_completions_has_no_scores():
    assert (await score([], [RewardTerm("number")])).total == []


@pytest.mark.parametrize(
    ("term", "said"),
    [
        (RewardTerm("nubmer"), "'nubmer' is unknown: did you mean 'number'"),
        (RewardTerm("no_such_module:f"), "'no_such_module:f' cannot be imported: ModuleNotFoundError"),
        (RewardTerm("graders:no_such"), "module 'graders' has no function 'no_such'"),
        (RewardTerm("tasks:mine"), "'tasks' has no function 'mine'; that is a module of this project: .* rename it"),
        (RewardTerm("graders:length_of_text", arguments={"facto": 2}), "beside completion it takes factor"),
        (RewardTerm("regex"), "missing a required argument: 'pattern'"),
        (RewardTerm("regex", arguments={"pattern": "("}), "does not compile"),
        (RewardTerm("length", arguments={"target": 0}), "target is 0"),
        (RewardTerm("number", arguments={"tolerance": -1}), "tolerance is -1"),
        (RewardTerm("number", math.nan), "weight is nan"),
        (RewardTerm("number", finish_bonus=2.0), "finish_bonus is 2.0"),
    ],
)
def test_a_term_that_cannot_be_called_is_refused_by_name(graders, term, said):
    with pytest.raises(ValueError, match=said):
        check_spec([term])


def test_a_reward_without_terms_is_refused():
    with pytest.raises(ValueError, match="at least one term"):
        check_spec([])


def test_a_reward_knows_whether_it_needs_answers():
    assert needs_answer([RewardTerm("length", arguments={"target": 1}), RewardTerm("contains")])
    assert needs_answer([RewardTerm("regex", arguments={"pattern": "(?P<answer>x)"})])
    assert not needs_answer([RewardTerm("regex", arguments={"pattern": "x"}), RewardTerm("graders:by_text")])


async def test_a_users_function_is_called_with_the_completion_and_its_arguments(graders):
    assert await only("abcd", RewardTerm("graders:length_of_text", arguments={"factor": 0.5})) == 2.0


async def test_a_users_function_may_be_asynchronous(graders):
    assert await only("42", RewardTerm("graders:asynchronous")) == 1.0


async def test_a_users_function_sees_every_field_of_the_completion(graders):
    completion = Completion(user("q"), "t", 7, False, Example("e", user("q"), "a", {"level": [1, 2]}))
    scores = await score([completion], [RewardTerm("graders:see_extra")])
    assert (scores.total, scores.failures) == ([1.0], {})


async def test_whatever_one_completion_does_to_its_grader_the_others_are_scored(graders):
    texts = [
        "a",
        "raise",
        "library",
        "nan",
        "inf",
        "text",
        "none",
        "exit",
        "die",
        "sleep",
        "spin",
        "print",
        "read",
        "bool",
        "z",
    ]
    async with RewardPool(workers=2, timeout_s=2.0) as pool:
        scores = await score([reply(text) for text in texts], [RewardTerm("graders:by_text")], pool=pool)
    wanted = {"a": 0.5, "print": 1.0, "read": 0.0, "bool": 1.0, "z": 0.5}
    assert dict(zip(texts, scores.total, strict=True)) == {text: wanted.get(text) for text in texts}
    reasons = {reason.removeprefix("graders:by_text: "): count for reason, count in scores.failures.items()}
    raised = {reason for reason in reasons if reason.startswith("raised RuntimeError at graders.py:")}
    assert len(raised) == 1
    assert sum(reasons.values()) == 10
    assert any(reason.startswith("raised JSONDecodeError at graders.py:") for reason in reasons), "not at decoder.py"
    assert reasons["gave no answer within 2 s"] == 2
    assert reasons["ended its process"] == 1
    assert reasons["returned nan"] == reasons["returned inf"] == 1
    assert reasons["returned a str, not a number"] == reasons["returned a NoneType, not a number"] == 1
    assert not any("secret words" in reason for reason in reasons)
    assert f"{raised.pop()}: secret words (once)" in scores.failures.told()


async def test_a_failed_term_makes_the_sum_none_and_leaves_the_other_term_in_the_report(graders):
    scores = await score([reply("raise", "raise")], [RewardTerm("exact"), RewardTerm("graders:by_text")])
    assert scores.total == [None]
    assert scores.by_function["exact"] == [1.0]


async def test_a_grader_may_use_sigalrm_and_an_alarm_it_leaves_behind_harms_nobody(graders):
    completions = [reply(text) for text in ("leave", "wait", "ring")]
    scores = await score(completions, [RewardTerm("graders:alarmed")], workers=1)
    assert scores.total == [1.0, 2.0, 3.0]


async def test_a_pattern_that_takes_for_ever_is_cut_off(graders):
    term = RewardTerm("regex", arguments={"pattern": r"(a+)+$"})
    scores = await score([reply("a" * 60 + "b"), reply("aaa")], [term], timeout_s=0.5, workers=1)
    assert scores.total == [None, 1.0]


async def test_killing_a_grader_kills_what_it_started(graders, tmp_path):
    note = tmp_path / "child.pid"
    scores = await score([reply(str(note))], [RewardTerm("graders:spawn")], timeout_s=1.0)
    assert scores.total == [None]
    child = int(note.read_text())
    async with asyncio.timeout(10):  # killed it is; that the system says so may take a moment
        while psutil.pid_exists(child) and psutil.Process(child).status() != "zombie":
            await asyncio.sleep(0.01)


async def test_a_process_that_escapes_the_kill_does_not_keep_the_batch_waiting(graders, tmp_path):
    note = tmp_path / "child.pid"
    scores = await score([reply(str(note))], [RewardTerm("graders:escape")], timeout_s=1.0)
    assert scores.total == [None]
    psutil.Process(int(note.read_text())).kill()  # still there: nobody waited for it


async def test_cancelling_the_scoring_ends_its_processes(graders):
    before = set(psutil.Process().children())
    scoring = asyncio.create_task(score([reply("sleep")] * 4, [RewardTerm("graders:by_text")], timeout_s=60.0))
    while not set(psutil.Process().children()) - before:
        await asyncio.sleep(0.01)
    scoring.cancel()
    with pytest.raises(asyncio.CancelledError):
        await scoring
    assert not set(psutil.Process().children()) - before


async def test_a_pool_that_was_interrupted_never_gives_the_next_batch_an_old_answer(graders):
    term = RewardTerm("graders:length_of_text")
    async with RewardPool(workers=1) as pool:
        await score([reply("warm")], [term], pool=pool)
        for interruption in range(20):
            scoring = asyncio.create_task(score([reply("x" * 7)], [term], pool=pool))
            for _ in range(interruption % 5):
                await asyncio.sleep(0)
            scoring.cancel()
            await asyncio.gather(scoring, return_exceptions=True)
        assert (await score([reply("abc")], [term], pool=pool)).total == [3.0]


async def test_a_pool_serves_several_batches_at_once_and_keeps_their_answers_apart(graders):
    async with RewardPool(workers=2) as pool:
        batches = [[reply("x" * size) for size in range(start, start + 10)] for start in (1, 21, 41)]
        term = RewardTerm("graders:length_of_text")
        scores = await asyncio.gather(*(score(batch, [term], pool=pool) for batch in batches))
    assert [batch.total for batch in scores] == [[float(s) for s in range(start, start + 10)] for start in (1, 21, 41)]


async def test_what_a_function_says_of_its_surroundings_is_kept_without_the_key(graders, monkeypatch):
    key = "planted-key-1234"
    monkeypatch.setenv("WHITNEY_API_KEY", key)
    monkeypatch.setenv("OTHER_VARIABLE", "kept")
    texts = ["environment OTHER_VARIABLE", "environment WHITNEY_API_KEY", f"unscorable {key}", f"class {key}", key]
    jobs = [Job("graders:telling", {}, reply(text)) for text in [*texts, "of a credentials block"]]
    async with RewardPool(workers=1, keys=[SecretStr("credentials block")]) as pool:
        said = await pool.texts(jobs)
        told = await pool.run(jobs[2:3])
    assert said[:3] == ["kept", None, Failed("cannot score [key]")]
    assert isinstance(said[3], Failed)
    assert said[3].reason.startswith("raised Error_[key] at graders.py:")
    assert said[4:] == ["[key]", "of a [key]"]
    assert told == [Failed("cannot score [key]")]


async def test_built_ins_start_no_process():
    before = psutil.Process().children()
    async with RewardPool() as pool:
        await score([reply("42")], [RewardTerm("number")], pool=pool)
        assert psutil.Process().children() == before


@pytest.mark.parametrize("arguments", [{"workers": 0}, {"timeout_s": 0.0}])
def test_a_pool_that_could_score_nothing_is_refused(arguments):
    with pytest.raises(ValueError, match=f"{next(iter(arguments))} is"):
        RewardPool(**arguments)


async def test_a_grader_beside_the_configuration_is_found_and_a_folder_named_tasks_there_hides_nothing(
    tmp_path, monkeypatch
):
    (tmp_path / "beside.py").write_text("def one(completion):\n    return 1.0\n")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "__init__.py").write_text("raise RuntimeError\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    assert await only("x", RewardTerm("beside:one")) == 1.0
