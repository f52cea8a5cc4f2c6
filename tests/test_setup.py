"""What a fresh machine starts from: the lock, the Makefile, the script of continuous integration."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
PINS = {
    canonicalize_name(name): version
    for name, version in re.findall(
        r"^([A-Za-z0-9._-]+)==(\S+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    )
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
REQUIREMENTS = [
    requirement
    for text in [
        *PROJECT["dependencies"],
        *(line for extra in PROJECT["optional-dependencies"].values() for line in extra),
    ]
    if (requirement := Requirement(text)).name not in ("torch", PROJECT["name"])
]


def test_the_lock_is_names_and_versions_and_nothing_else() -> None:
    lines = [line for line in (ROOT / "requirements.lock").read_text().splitlines() if not line.startswith("#")]
    assert len(lines) == len(PINS)
    assert "torch" not in PINS


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_what_the_project_asks_for_is_locked_at_a_version_it_accepts(requirement: Requirement) -> None:
    assert requirement.specifier.contains(PINS[canonicalize_name(requirement.name)])


def test_make_offers_what_it_has() -> None:
    shown = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (targets,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert set(re.findall(r"^make ([\w-]+)", shown, re.MULTILINE)) == set(targets.split()) - {"help"}


def test_the_cpu_index_is_asked_for_pytorch_alone_and_only_when_it_is_given() -> None:
    def installs(*variables: str) -> list[str]:
        command = ["make", "--always-make", "--dry-run", "demo", *variables]
        shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        return [line for line in shown.splitlines() if "pip" in line and " install " in line]

    assert not any("index" in line for line in installs())
    torch, rest = installs("TORCH_INDEX_URL=https://index.example.com/cpu")
    assert "--index-url https://index.example.com/cpu" in torch
    assert "torch==" in torch
    assert "index" not in rest


@pytest.mark.parametrize(("extras", "installed"), [("", "[local]"), ("math,mcp", "[local,math,mcp]")])
def test_make_install_brings_the_gateway_and_the_extras_that_are_named_and_no_demo(extras: str, installed: str) -> None:
    command = ["make", "--always-make", "--dry-run", "install", f"EXTRAS={extras}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert f'-e ".{installed}"' in shown
    assert "whitney demo" not in shown


def test_continuous_integration_runs_make_test() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    assert script.read_text().splitlines()[-1] == "exec make test INSTALLER=uv"


@pytest.mark.parametrize(("installer", "by"), [("pip", "-m pip "), ("uv", "uv pip ")])
def test_whoever_installs_does_it_at_the_locked_versions(installer: str, by: str) -> None:
    command = ["make", "--always-make", "--dry-run", "install", f"INSTALLER={installer}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (project,) = (line for line in shown.splitlines() if '-e ".[local]"' in line)
    assert by in project.split("&&")[-1]
    assert project.endswith('-c requirements.lock -e ".[local]"')
