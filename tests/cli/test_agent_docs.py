"""What coding agents are told is there."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

from algorithms import ALGORITHMS
from cli.app import app
from cli.mcp_server import Tools

ROOT = Path(__file__).parents[2]
AGENTS = ROOT / "AGENTS.md"
GUIDE = ROOT / "docs" / "coding-agents.md"
SKILL = ROOT / "skills" / "whitney-training" / "SKILL.md"
PAGES = [AGENTS, GUIDE, SKILL]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_link_leads_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_and_make_target_is_one(page: Path) -> None:
    text = page.read_text()
    commands = {name for name in app if not name.startswith("-")}
    assert set(re.findall(r"`whitney (\w+)", text)) <= commands
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert set(re.findall(r"(?:^|`)make (\w+)", text, re.MULTILINE)) <= targets


def test_the_tools_are_those_of_the_server() -> None:
    tools = {name for name, _ in inspect.getmembers(Tools, inspect.isfunction) if not name.startswith("_")}
    table = GUIDE.read_text().split("| tool | |")[1]
    assert set(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == tools


def test_the_algorithms_to_choose_from_are_registered() -> None:
    table = SKILL.read_text().split("## Choosing")[1].split("##")[0]
    cells = [line.split("|")[2] for line in table.splitlines() if line.startswith("|")]
    named = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    assert named <= set(ALGORITHMS)
    assert {"sft", "grpo", "dapo", "opd", "dpo", "ttt", "custom"} <= named


@pytest.mark.parametrize(
    "name",
    ["flows.load_config.load_config", "flows.checks.prepare.check_inputs", "whitney.client.WhitneyClient"],
)
def test_what_may_be_built_on_is_there(name: str) -> None:
    assert name in GUIDE.read_text()
    module, _, member = name.rpartition(".")
    assert callable(getattr(import_module(module), member))


def test_the_skill_says_what_it_is_for() -> None:
    _, head, _ = SKILL.read_text().split("---", 2)
    fields = dict(line.split(": ", 1) for line in head.strip().splitlines())
    assert fields["name"] == SKILL.parent.name
    assert 50 < len(fields["description"]) <= 1024
