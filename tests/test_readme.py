"""What the README tells a newcomer to type, typed."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from typist import Said, Typist

from gateway.launch import GatewayProcess

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [
    line for block in re.findall(r"^```sh\n(.*?)^```", README, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]
SNIPPETS = re.findall(r"^```python\n(.*?)^```", README, re.DOTALL | re.MULTILINE)


def typed(command: str, terminal: Typist, folder: Path, environment: dict[str, str]) -> Said:
    """A line of the README. `make` would make an environment and run this very test: it only shows its commands."""
    if "ARTIFACT" in command:
        teacher = json.loads((folder / "runs" / "teacher" / "summary.json").read_text())
        command = command.replace("ARTIFACT", teacher["artifact_id"])
    words = shlex.split(command)
    if words[0] == "whitney":
        return terminal.type(words)
    where = ROOT if words[0] == "make" else folder
    words = ["make", "--dry-run", *words[1:]] if words[0] == "make" else words
    done = subprocess.run(words, cwd=where, env=environment, capture_output=True, text=True, check=False)
    return Said(done.returncode, done.stdout, done.stderr)


@pytest.mark.timeout(600)
def test_every_command_of_the_readme_works_in_the_order_it_is_given(
    endpoint: GatewayProcess, prefect_server: str, tmp_path: Path
) -> None:
    # A Prefect server that is there, as beside `whitney up`: what a run does that has to start one of its own is
    # looked at in tests/cli/test_temporary_prefect.py.
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PREFECT_API_URL": prefect_server,
        "PREFECT_LOGGING_LEVEL": "WARNING",
    }
    with closing(Typist(tmp_path, environment)) as terminal:
        for command in COMMANDS:
            if command.startswith("export "):  # an address that is an example, and the key to it
                assert re.fullmatch(r"export WHITNEY_(BASE_URL=https://whitney\.example\.com|API_KEY=\S+)", command)
                continue
            status, out, err = typed(command, terminal, tmp_path, environment)
            assert status == 0, f"{command}\n{out}\n{err}"
            assert "Traceback" not in err
    assert (tmp_path / "runs" / "first" / "adapter" / "adapter_config.json").is_file()
    assert (tmp_path / "runs" / "first" / "summary.json").is_file()
    assert (tmp_path / "runs" / "student" / "summary.json").is_file()
    offline = environment | {"HF_HUB_OFFLINE": "1"}  # what is loaded lies here; nothing may be asked for elsewhere
    for snippet in (text for text in SNIPPETS if not text.startswith("def ")):
        wrote = subprocess.run(
            [sys.executable, "-c", snippet], cwd=tmp_path, env=offline, capture_output=True, text=True, check=False
        )
        assert wrote.returncode == 0, wrote.stderr
        # A run's folder, or a reply and print's line break: the tiny model may say nothing but line breaks.
        assert len(wrote.stdout) > 1


async def test_the_readmes_own_reward_scores_as_it_says() -> None:
    from tasks.completion import Completion
    from tasks.examples import example, user

    (grader,) = [text for text in SNIPPETS if text.startswith("def ")]
    namespace: dict[str, Any] = {}
    exec(grader, namespace)
    question = example(user("5 + 7?"), "12")
    for text, worth in (("It is 12.", 1.0), ("13", 0.9), ("99", 0.0)):
        completion = Completion(question.messages, text, 3, True, question)
        assert namespace["closeness"](completion) == pytest.approx(worth)


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", README))))
def test_a_file_that_the_readme_links_to_is_there(target: str) -> None:
    assert (ROOT / target).exists()


def test_the_readme_names_every_command_of_the_command_line() -> None:
    from cli.app import app

    commands = {name for name in app if not name.startswith("-")}
    assert commands == set(re.findall(r"^\| `whitney (\w+)", README, re.MULTILINE))


def test_the_readme_names_every_extra() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    table = README.split("\n## Extras\n")[1].split("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", table, re.MULTILINE) == list(extras)


def test_the_gateways_that_the_readme_starts_serve_the_models_of_its_recipes() -> None:
    from gateway.options import GatewayOptions

    for_python, for_two_runs = (
        set(re.findall(r"--model (\S+)", flags))
        for flags in re.findall(r"`whitney serve([^`]* --model [^`]*)`", README)
    )
    assert for_python == set(re.findall(r'model={"name": "(\S+)"}', "".join(SNIPPETS)))
    assert for_two_runs == {*re.findall(r"model\.name=(\S+)", "\n".join(COMMANDS)), *GatewayOptions().models}


def test_the_readmes_table_is_the_registry() -> None:
    from cli.algorithm_pages import index_table

    assert "\n".join(index_table("docs/algorithms/")) in README


def test_the_readmes_figures_are_those_that_were_measured() -> None:
    from benchmarks.experiments import Records
    from benchmarks.learn import EXPERIMENTS, RESULTS
    from benchmarks.readme_table import readme

    assert readme(EXPERIMENTS, Records(RESULTS)) == README
