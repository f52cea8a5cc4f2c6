"""`whitney run` in this process: the real flow, the real gateway with the tiny model, a real Prefect server."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest

from cli.app import run_command
from gateway.launch import GatewayProcess, start_gateway
from tasks.events import Event, listening
from tasks.glossary import GLOSSARY, entry
from whitney.client import WhitneyClient
from whitney.errors import ConnectionFailedError
from whitney.settings import WhitneySettings

CONFIG = """
algorithm = "grpo"
cycles = 2
groups_per_cycle = 2
group_size = 4
[model]
name = "tiny"
[sampling]
max_tokens = 6
[[rewards]]
function = "length"
arguments = { target = 6 }
[evaluation]
samples = 1
max_prompts = 2
"""

pytestmark = pytest.mark.usefixtures("prefect_server", "endpoint", "loggers_as_they_were")


@pytest.fixture
def config(endpoint: GatewayProcess, tmp_path: Path) -> Path:
    path = tmp_path / "tiny.toml"
    path.write_text(CONFIG)
    return path


async def open_sessions(gateway: GatewayProcess) -> int:
    settings = WhitneySettings(base_url=gateway.base_url, api_key=gateway.api_key)
    async with WhitneyClient(settings) as client:
        return len(await client.list_sessions(status="open"))


def count_open_sessions(gateway: GatewayProcess) -> int:
    import asyncio

    return asyncio.run(open_sessions(gateway))


def test_a_run_ends_with_its_numbers_and_where_everything_is(
    config: Path, endpoint: GatewayProcess, prefect_server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", str(config), "--name", "first", "--set", "seed=3", "--set", "evaluation.every=9"]) == 0
    shown = capsys.readouterr().out
    assert "evaluation.every = 9: more than cycles = 2, so nothing is measured between" in " ".join(shown.split())
    assert f"Whitney at {endpoint.base_url} serves local/tiny" in shown
    assert "cycle 1/2" in shown
    assert "Run:       runs/first" in shown
    assert f"Artifact:  {json.loads(Path('runs/first/summary.json').read_text())['artifact_id']}" in shown
    summary = json.loads(Path("runs/first/summary.json").read_text())
    assert f"/runs/flow-run/{summary['flow_run_id']}" in shown
    assert "Planned:   typically 18 operations" in shown
    plan = json.loads(Path("runs/first/plan.json").read_text())
    assert summary["planned"] == {part: plan[part] for part in ("operations", "tokens")}
    assert all(span["least"] <= summary["tokens"][kind] <= span["most"] for kind, span in plan["tokens"].items())
    assert summary["open_sessions"] == 0
    assert json.loads(Path("runs/first/config.json").read_text())["config"]["seed"] == 3
    assert count_open_sessions(endpoint) == 0


MOODY = """
from zlib import crc32

def moody(completion):
    mood = crc32(completion.text.encode()) % 4
    if mood == 0:
        raise ValueError("not this one")
    return float(mood)
"""
SFT = CONFIG.replace('"grpo"', '"sft"').replace("groups_per_cycle = 2\ngroup_size = 4", "batch_size = 8")
SFT = SFT.replace('[[rewards]]\nfunction = "length"\narguments = { target = 6 }\n', "")


def metrics_of(name: str, config: Path, *overrides: str) -> list[dict[str, float]]:
    settings = [word for override in overrides for word in ("--set", override)]
    assert run_command(["run", str(config), "--name", name, *settings]) == 0
    return [json.loads(line) for line in Path(f"runs/{name}/metrics.jsonl").read_text().splitlines()]


EVERY_METRIC = {
    "rloo": ("steps_per_batch=2", "kl.coef=0.1"),
    "dapo": ("resample.max_rounds=1",),
    "ppo_critic": (),
    "opsd": (),
    "sdpo": ("group_size=2", "feedback=sibling", 'rewards=[{function="contains"}]'),
    "dpo": ("data.source=addition-1digit-preferences", "batch_size=4"),
    "ttt": (),
}
"""Algorithms whose runs write what the others do not, with the settings that make them."""


def test_the_glossary_explains_what_runs_write_and_nothing_that_none_does(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Runs that meet everything: rewards that fail here and there, an answer that is too long to train on."""
    (tmp_path / "moody_reward.py").write_text(MOODY)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))  # rewards are computed in processes of their own
    rewards = 'rewards=[{function="length", arguments={target=6}}, {function="moody_reward:moody"}]'
    rows = metrics_of("all-of-grpo", config, rewards)
    imitated = tmp_path / "sft.toml"
    imitated.write_text(SFT)
    answers = [{"prompt": f"{n}?", "answer": "la" * (4000 if n == 0 else 2)} for n in range(8)]
    (tmp_path / "answers.jsonl").write_text("".join(json.dumps(answer) + "\n" for answer in answers))
    rows += metrics_of("all-of-sft", imitated, "data.source=answers.jsonl", "data.heldout_fraction=0")
    for algorithm, settings in EVERY_METRIC.items():
        path = tmp_path / f"{algorithm}.toml"
        text = CONFIG.replace('"grpo"', f'"{algorithm}"').replace("samples = 1\nmax_prompts = 2", "enabled = false")
        unrewarded = SFT.replace('"sft"', f'"{algorithm}"').replace("batch_size = 8", "")
        path.write_text(unrewarded if algorithm in {"dpo", "opsd"} else text)
        rows += metrics_of(f"all-of-{algorithm}", path, *settings)
    written = {key for row in rows for key in row}
    assert {key for key in written if entry(key) is None} == set()
    assert set(GLOSSARY) - {entry(key) for key in written} == set()


def test_a_name_that_is_taken_is_told_and_the_earlier_run_is_left_alone(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["run", str(config), "--name", "twice", "--set", "cycles=1", "--set", "evaluation.enabled=false"]
    assert run_command(small) == 0
    first = Path("runs/twice/summary.json").read_bytes()
    assert "is there already" not in capsys.readouterr().out
    assert run_command(small) == 0
    assert "runs/twice is there already" in capsys.readouterr().out
    assert Path("runs/twice/summary.json").read_bytes() == first
    assert len(list(Path("runs").iterdir())) == 2


def test_input_that_cannot_work_is_a_message_and_leaves_nothing_open(
    config: Path, endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command(["run", str(config), "--set", "lora.rank=1000"]) == 2
    captured = capsys.readouterr()
    assert "whitney: lora.rank = 1000" in captured.err
    assert "Traceback" not in captured.err
    assert count_open_sessions(endpoint) == 0


def test_a_data_file_with_a_bad_line_is_told_by_file_and_line(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "questions.jsonl"
    data.write_text('{"prompt": "1+1?", "answer": "2"}\n{"prompt": 7}\n')
    assert run_command(["run", str(config), "--set", f"data.source={data}"]) == 2
    assert "questions.jsonl:2:" in capsys.readouterr().err


def test_a_wrong_key_is_told_before_a_flow_run_begins_and_never_shown(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHITNEY_API_KEY", "wk-not-the-key-7f3a")
    assert run_command(["run", str(config)]) == 2
    captured = capsys.readouterr()
    assert "check WHITNEY_API_KEY" in captured.err
    assert "wk-not-the-key-7f3a" not in captured.out + captured.err
    assert not Path("runs").exists()


def test_an_endpoint_that_is_named_badly_is_an_error_and_not_a_reason_for_another(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WHITNEY_BASE_URL", "whitney.example.com")
    assert run_command(["run", str(config)]) == 2
    assert "WHITNEY_BASE_URL" in capsys.readouterr().err
    assert not Path(".whitney").exists()


def test_without_an_endpoint_and_without_leave_to_start_one_it_says_what_to_set(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("WHITNEY_BASE_URL")
    monkeypatch.delenv("WHITNEY_API_KEY")
    monkeypatch.setenv("WHITNEY_DATA_DIR", str(tmp_path / "nobody"))
    assert run_command(["run", str(config), "--no-embedded"]) == 2
    assert "set WHITNEY_BASE_URL and WHITNEY_API_KEY" in capsys.readouterr().err


def test_a_run_that_fails_on_the_way_is_one_sentence_with_where_to_look(
    config: Path, endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    def sabotage(event: Event) -> None:
        if event.kind == "cycle":
            Path("runs/doomed/metrics.jsonl").mkdir(parents=True)

    with listening(sabotage):
        assert run_command(["run", str(config), "--name", "doomed"]) == 1
    captured = capsys.readouterr()
    assert "whitney: the run failed: " in captured.err
    assert "what it left: runs/doomed" in captured.err
    assert "its log: http" in captured.err
    assert "to go on: mend what the message names, then `whitney run --resume runs/doomed`" in captured.err
    assert "Traceback" not in captured.err
    assert count_open_sessions(endpoint) == 0


def test_once_a_session_is_open_no_failure_is_called_the_users_mistake(
    config: Path, endpoint: GatewayProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def lose_the_connection(event: Event) -> None:
        if event.kind == "session_opened":
            raise ConnectionFailedError("no answer")

    with listening(lose_the_connection):
        assert run_command(["run", str(config), "--name", "lost"]) == 1
    captured = capsys.readouterr()
    assert "whitney: the run failed: no answer" in captured.err
    assert " closed" in captured.out
    assert count_open_sessions(endpoint) == 0


def test_a_run_that_is_refused_after_its_session_was_opened_has_failed(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refusal = {"action": "status", "status": 401, "route": "create_run"}
    with start_gateway(tmp_path / "data", faults=[refusal]) as gateway:
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        assert run_command(["run", str(config)]) == 1
        assert count_open_sessions(gateway) == 0
    assert "whitney: the run failed: " in capsys.readouterr().err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_closes_its_session(
    number: signal.Signals, config: Path, endpoint: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = []

    def interrupt(event: Event) -> None:
        if event.kind == "session_opened":
            opened.append(event.facts["session_id"])
            os.kill(os.getpid(), number)

    with listening(interrupt):
        assert run_command(["run", str(config), "--set", "cycles=500"]) == 130
    assert opened
    assert "whitney: interrupted" in capsys.readouterr().err
    assert count_open_sessions(endpoint) == 0
