"""`whitney plan` against a real gateway, whose ledger says that nothing was allocated."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from http.server import HTTPServer, SimpleHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from plan_files import GRPO, NEVER

from cli.app import run_command
from flows.load_config import load_algorithm
from gateway.launch import start_gateway
from tasks import data as data_sets
from tasks.data import DataSet, DataSource

pytestmark = pytest.mark.usefixtures("ledger_stays_as_it_was")

ROOT = Path(__file__).parents[2]
SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "vocab_size": 100,
    "tie_word_embeddings": False,
}
PARAMETERS = 2 * 100 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 128) + 5 * 64

Planned = Callable[..., Any]


def test_a_plan_has_what_its_schema_says_and_counts_prompts_to_the_token(planned: Planned) -> None:
    plan = planned("grpo.toml", "--completion-tokens", "3")
    assert plan["operations"]["sample"] == {"least": 16, "typical": 16, "most": 16}  # 8 for training, 8 to measure
    assert plan["operations"]["optim_step"] == {"least": 0, "typical": 4, "most": 4}
    sampled = 4 * 2 * 4 + 2 * 4 * 2  # completions
    assert plan["tokens"]["sampled"] == {"least": sampled, "typical": 3 * sampled, "most": 6 * sampled}
    assert plan["tokens"]["prefill"] == {"least": 16 * 22, "typical": 16 * 22, "most": 16 * 22}
    assert plan["tokens"]["trained"] == {"least": 0, "typical": 32 * (22 + 3 - 1), "most": 32 * (22 + 6 - 1)}
    assert plan["per_cycle"]["operations"]["sample"]["typical"] == 2
    assert plan["flops"]["least"] < plan["flops"]["typical"] < plan["flops"]["most"]
    assert plan["memory"] == plan["models"]["local/tiny"]
    assert plan["memory"]["process"] > plan["memory"]["weights"], "Python and torch are more than so small a model"
    assert (plan["cost"], plan["cost_parts"], plan["seconds"], plan["stages"]) == (None, {}, None, {})
    assert plan["gold"]["mean"] == 1


def test_completions_are_taken_to_be_half_as_long_as_they_may_be_or_as_they_were_in_an_earlier_run(
    planned: Planned,
) -> None:
    def assumed(*arguments: str) -> list[Any]:
        found = planned("grpo.toml", *arguments)["assumptions"]
        return [found[f"completion_tokens{what}"] for what in ("", "_source")] + [found["earlier_run"]]

    assert assumed() == [3, "half_of_max_tokens", None]
    assert assumed("--set", "sampling.ignore_eos=true") == [6, "ignore_eos", None]
    runs: list[tuple[str, str, list[float | None]]] = [
        ("other", "sapo", [1]),
        ("old", "grpo", [2]),
        ("new", "grpo", [4, 6, None, 1e308, 1e308]),
        ("cut", "grpo", [9]),
    ]
    for place, (name, algorithm, lengths) in enumerate(runs):
        folder = Path("runs", name)
        folder.mkdir(parents=True)
        most = 12 if name == "cut" else 6
        config = load_algorithm(Path("grpo.toml"), [f"sampling.max_tokens={most}"])[1].model_dump(mode="json")
        record = {"flow_run_id": name, "algorithm": algorithm, "config": config}
        (folder / "config.json").write_text(json.dumps(record))
        rows = [json.dumps({"cycle": at, "completion_tokens_mean": mean}) for at, mean in enumerate(lengths)]
        cut = rows[0][:-9]  # as a process leaves its last line that is killed while it writes
        (folder / "metrics.jsonl").write_text("\n".join([*rows, cut]))
        os.utime(folder / "metrics.jsonl", (place, place))
    assert assumed() == [5, "earlier_run", "runs/new"]
    assert assumed("--set", "name=old") == [2, "earlier_run", "runs/old"]
    assert assumed("--completion-tokens", "1.5") == [1.5, "option", None]


def test_prices_and_a_gpu_make_money_and_time_of_it(planned: Planned) -> None:
    plan = planned("sft.toml", "--prices", "prices.toml")
    seconds = plan["flops"]["typical"] / (2 * 0.4 * 989e12)
    assert plan["seconds"]["typical"] == pytest.approx(seconds)
    cost = 0.5 * plan["operations"]["sample"]["typical"] + plan["tokens"]["prefill"]["typical"] + 2 * seconds
    assert plan["cost"]["typical"] == pytest.approx(cost)
    assert plan["cost_parts"]["gpu_time"]["typical"] == pytest.approx(2 * seconds)
    assert plan["cost_parts"]["tokens"]["typical"] == plan["tokens"]["prefill"]["typical"]
    assert plan["currency"] == "€"
    assumed = plan["assumptions"]
    assert (assumed["gpu"], assumed["utilization"], assumed["prices"]) == ("2 × h100", 0.4, "prices.toml")
    assert plan["warnings"] == []
    unpriced = "forward, forward_backward, optim_step, save_weights_for_sampler, save_state, export_lora"
    counted_as_0 = f"{unpriced}, sampled tokens, trained tokens"
    told = f"Cost: without a price above 0 in prices.toml, and so counted as 0: {counted_as_0}."
    assert told in plan["notes"]
    slower = planned("sft.toml", "--prices", "prices.toml", "--gpu", "L4")
    assert slower["seconds"]["typical"] == pytest.approx(plan["seconds"]["typical"] * 989 / 121)
    assert set(slower["cost_parts"]) == {"operations", "tokens"}, "an hour of an L4 does not cost what the H100's does"
    assert slower["warnings"] == [
        "gpu.per_hour of prices.toml is the price of the h100, so time on the l4 costs nothing here."
    ]
    Path("hours.toml").write_text('gpu = { kind = "h100", per_hour = 3600 }')
    timed = planned("sft.toml", "--prices", "hours.toml", "--gpu", "l4")
    assert (timed["cost"], [said.partition(" of ")[0] for said in timed["warnings"]]) == (None, ["gpu.per_hour"])
    budgeted = planned("sft.toml", "--set", "budget.prices=prices.toml", "--set", "budget.max_tokens=5000")
    assert budgeted["cost"] == plan["cost"]


def test_the_stages_of_a_pipeline_add_up_and_it_needs_the_memory_of_the_largest(planned: Planned) -> None:
    plan = planned("pipeline.toml")
    stages = list(plan["stages"].values())
    assert list(plan["stages"]) == ["sft", "rl"]
    for part, name in (("operations", "optim_step"), ("tokens", "trained"), ("tokens", "sampled")):
        together = [stage[part].get(name, {"most": 0})["most"] for stage in stages]
        assert plan[part][name]["most"] == sum(together)
    assert plan["flops"]["typical"] == pytest.approx(sum(stage["flops"]["typical"] for stage in stages))
    assert plan["cycles"] == 5
    assert plan["memory"] == max((stage["memory"] for stage in stages), key=lambda held: sum(held.values()))


def test_of_two_configurations_each_has_its_plan(planned: Planned) -> None:
    first, second = planned("sft.toml", "grpo.toml", "--set", "cycles=7")
    assert (first["algorithm"], second["algorithm"]) == ("sft", "grpo")
    assert first["operations"]["optim_step"]["most"] == second["operations"]["optim_step"]["most"] == 7


def test_data_are_read_once_for_the_check_and_the_plan_and_again_when_the_file_has_changed(
    planned: Planned, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = {"prompt": "What is 1 + 1?", "answer": "2"}
    own = Path("read.jsonl")
    own.write_text(f"{json.dumps(row)}\n" * 3)
    reads, real = [], data_sets.load

    def counted(source: DataSource) -> DataSet:
        reads.append(source.source)
        return real(source)

    monkeypatch.setattr(data_sets, "load", counted)
    settings = ("--set", f"data.source={own}", "--set", "data.heldout_fraction=0", "--set", "evaluation.enabled=false")
    assert planned("grpo.toml", *settings)["gold"]["answers"] == 3
    assert reads == [str(own)]
    own.write_text(f"{json.dumps(row)}\n" * 2)
    assert planned("grpo.toml", *settings)["gold"]["answers"] == 2
    assert reads == [str(own)] * 2


def test_a_reward_that_hangs_is_waited_for_twice_and_not_for_every_answer(planned: Planned) -> None:
    row = json.dumps({"prompt": "ones?", "answer": "1" * 60})
    Path("ones.jsonl").write_text(f"{row}\n" * 5)
    endless = NEVER.replace("no digit", "(1+)+x") + "\nreward_timeout_s = 0.3\n"
    Path("endless.toml").write_text(endless)
    own = ("--set", "data.source=ones.jsonl", "--set", "data.heldout_fraction=0", "--set", "evaluation.enabled=false")
    gold = planned("endless.toml", *own)["gold"]
    assert (gold["answers"], gold["unscored"], gold["mean"]) == (2, 2, None)
    assert gold["why"] == "regex: gave no answer within 0.3 s (2 times); the others are not scored"


def test_what_speaks_against_a_run_is_a_warning(planned: Planned, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"prompt": f"What is 1 + {n}?", "answer": answer} for n, answer in enumerate(["1", "two", "3", "4", "5", "6"])
    ]
    Path("own.jsonl").write_text("".join(json.dumps({"id": f"row-{at}", **row}) + "\n" for at, row in enumerate(rows)))
    own = ("grpo.toml", "--set", "data.source=own.jsonl", "--set", "data.heldout_fraction=0")
    gold = planned(*own, "--set", "evaluation.enabled=false")["gold"]
    assert (gold["answers"], gold["unscored"], gold["example"]) == (6, 1, "row-1")
    never = planned("never.toml")
    assert never["gold"]["mean"] == 0
    assert never["warnings"][0].startswith("The rewards give the data's own answers 0, so nothing can be learnt")
    few = [f"budget.{name}" for name in ("max_operations=40", "project=p", "max_operations_per_month=30")]
    warned = planned("grpo.toml", *(word for one in few for word in ("--set", one)))["warnings"]
    assert warned == [
        "budget.max_operations_per_month = 30 will end it early: 0 are used by 'p', 30 are left, and 34 are typical, "
        "34 the most."
    ]
    assert run_command(["plan", *own, "--set", "evaluation.enabled=false"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    unscored = "Warning: 1 of 6 of the data's own answers have no reward, that of example row-1 for one: number: "
    assert shown.index(unscored) < shown.index(" cycles "), "above the table"
    assert "The data's own answers: 5 of 6 scored, mean reward 1" in shown


OF_MONEY = ["--set", "budget.max_cost=0.005", "--set", "budget.prices=unfilled.toml"]
OF_A_MONTH = [f"--set=budget.{one}" for one in ("max_cost_per_month=5", "project=p", "prices=hours.toml")]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["none.toml"], "none.toml: no such file; `whitney init grpo` writes a commented one"),
        (["grpo.toml", "--set", "cycels=3"], "unknown field 'cycels': did you mean 'cycles'?"),
        (
            ["grpo.toml", "--prices", "no.toml"],
            "the price file 'no.toml': no such file; `whitney init prices` writes one\n",
        ),
        (["grpo.toml", "--set", "budget.max_operations=3"], "budget.max_operations = 3: "),
        (["pipeline.toml", "--set", "budget.max_operations=3"], "budget.max_operations = 3: "),
        (["pipeline.toml", "--set", "stages.rl.config.budget.max_operations=3"], "stage 'rl': budget.max_operations"),
        (
            ["grpo.toml", *OF_MONEY],
            "budget.max_cost = 0.005: no price of operations, tokens or gpu.per_hour in unfilled.toml is above 0",
        ),
        (
            ["grpo.toml", "--set=budget.project=p", "--set=budget.max_operations_per_month=3"],
            "budget.max_operations_per_month = 3: the runs of project 'p' have used 0 this month, and one more that "
            "leaves an adapter needs 11 at least (",
        ),
        (
            ["pipeline.toml", "--set=budget.project=p", "--set=budget.max_operations_per_month=3"],
            "budget.max_operations_per_month = 3: 0 used, and the first stage needs ",
        ),
        (["pipeline.toml", *OF_MONEY], "budget.max_cost = 0.005: no price of "),
        (
            ["grpo.toml", *OF_A_MONTH],
            "budget.max_cost_per_month = 5: no price of operations or tokens in hours.toml is above 0, so it would "
            "never be reached: write there what you pay, or leave the limit out",
        ),
        (["grpo.toml", "--prices", "grpo.toml"], "unknown field 'algorithm'"),
        (["grpo.toml", "--gpu", "h1000"], "unknown GPU 'h1000': did you mean 'h100'? known: l4, "),
        (
            ["grpo.toml", "--completion-tokens", "7"],
            "--completion-tokens 7: a completion has 1 to sampling.max_tokens = 6",
        ),
        (
            ["grpo.toml", "--set", "model.provider=modal"],
            "model.provider = 'modal', model.name = 'tiny': not served here",
        ),
        (
            ["grpo.toml", "--set", "algorithm=sapo", "--set", "model.provider=tinker"],
            "tinker does not advertise loss_",
        ),
        (["grpo.toml", "--set", "lora.rank=1000"], "lora.rank = 1000: local/tiny takes at most "),
        (["grpo.toml", "--set", "model.initial_state_id=gone"], "model.initial_state_id = 'gone': "),
        (["grpo.toml", "--set", "data.source=gone.jsonl"], "data source 'gone.jsonl' is unknown"),
        (["pipeline.toml", "--set", "stages.rl.config.data.source=gone.jsonl"], "stage 'rl': data source 'gone.jsonl'"),
    ],
    ids=lambda value: " ".join(value[1:]) or "no file" if isinstance(value, list) else "",
)
def test_each_thing_that_can_be_wrong_is_told_in_a_sentence(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("unfilled.toml").write_text('currency = "€"')
    Path("hours.toml").write_text('gpu = { kind = "h100", per_hour = 2 }')
    assert run_command(["plan", *arguments]) == 2
    shown = capsys.readouterr().err
    assert said in shown
    assert "Traceback" not in shown


def test_a_server_that_is_no_whitney_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with HTTPServer(("127.0.0.1", 0), SimpleHTTPRequestHandler) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        monkeypatch.setenv("WHITNEY_BASE_URL", f"http://127.0.0.1:{server.server_port}")
        assert run_command(["plan", "grpo.toml"]) == 2
        server.shutdown()
    shown = capsys.readouterr().err
    assert "is no Whitney endpoint: it answers 404" in shown
    assert "Traceback" not in shown


UNKNOWN = 'model = { name = "maker/odd-7b", tokenizer = "tiny" }'


@pytest.fixture
def unknown_model(
    ledger_stays_as_it_was: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """odd.toml, of a model that is served here and that nobody knows the sizes of."""
    data = tmp_path_factory.mktemp("delay")
    Path("odd.toml").write_text(GRPO.replace('model = { name = "tiny" }', UNKNOWN))
    with start_gateway(data, provider="delay", models=("maker/odd-7b",)) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        yield


@pytest.mark.usefixtures("unknown_model")
def test_a_model_of_unknown_sizes_is_planned_without_flops_until_its_config_json_is_named(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned("odd.toml")
    assert (plan["flops"], plan["memory"], plan["models"]) == (None, None, {})
    assert plan["operations"]["sample"]["most"] == 16
    assert plan["tokens"]["trained"]["most"] > 0
    way_out = "`whitney plan --model-config maker/odd-7b=FILE` reads them from its config.json"
    assert any(note.startswith("No FLOPs and no memory: ") and way_out in note for note in plan["warnings"])

    Path("odd").mkdir()
    Path("odd/config.json").write_text(json.dumps(SIZES))
    for argument in ("odd", "odd/config.json", "maker/odd-7b=odd"):
        sized = planned("odd.toml", "--model-config", argument)
        assert sized["models"]["local/maker/odd-7b"]["weights"] > 4 * PARAMETERS
        assert f"The sizes of maker/odd-7b: odd/config.json, {PARAMETERS:,} parameters." in sized["notes"]
        assert sized["operations"] == plan["operations"]
    os.mkfifo("fifo")
    Path("deep.json").write_text("[" * 200_000)
    for argument, said in (
        ("fifo", "--model-config fifo is no file: name the model's config.json, or the folder that holds it"),
        ("deep.json", "--model-config deep.json is not JSON: "),
        ("gone", "--model-config gone cannot be read: No such file"),
        ("odd.toml", "--model-config odd.toml is not JSON: "),
        ("maker/odd=odd", "--model-config maker/odd=odd: no model is called 'maker/odd' here; there is maker/odd-7b"),
        ("bad.json", "--model-config bad.json: num_attention_heads must be a positive integer, and is None"),
    ):
        Path("bad.json").write_text("{}")
        assert run_command(["plan", "odd.toml", "--model-config", argument]) == 2
        assert said in capsys.readouterr().err
    assert run_command(["plan", "odd.toml", "grpo.toml", "--model-config", "odd"]) == 2
    assert "odd: of which model? Write NAME=odd, NAME being one of maker/odd-7b, tiny" in capsys.readouterr().err


def test_the_price_file_that_init_writes_prices_nothing_until_it_is_filled_in(
    planned: Planned, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["init", "prices", "mine.toml"]) == 0
    assert "whitney plan CONFIG --prices mine.toml" in capsys.readouterr().out
    unfilled = planned("grpo.toml", "--prices", "mine.toml")
    assert unfilled["cost"] is None, "what nobody has priced is not free"
    assert unfilled["warnings"] == ["No price in mine.toml is above 0, so there is no cost: write what you pay."]
    text = Path("mine.toml").read_text()
    for line in ("sample = 0.0", "trained = 0.0", "[gpu]", 'kind = "h100"'):
        text = text.replace(f"# {line}", line.replace("0.0", "1.0"))
    Path("mine.toml").write_text(text)
    plan = planned("grpo.toml", "--prices", "mine.toml")
    assert plan["cost"]["most"] == pytest.approx(16 + plan["tokens"]["trained"]["most"] / 1e6)
    assert plan["seconds"]["most"] > 0


@pytest.mark.parametrize("name", ["grpo", "opd"])
def test_a_shipped_configuration_names_a_model_whose_sizes_are_known(name: str) -> None:
    from flows.plan.model_size import spec_of

    _, config = load_algorithm(ROOT / "deployments" / "configs" / f"{name}.toml")
    assert spec_of(config.model, {}).total == pytest.approx(134_515_008, rel=1e-6)
