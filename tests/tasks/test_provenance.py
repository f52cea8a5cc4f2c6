from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from tasks.provenance import PROJECT, provenance


def git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run(["git", *who, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    (tmp_path / "requirements.lock").write_text("prefect==3.9.1\n")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "one")
    return tmp_path


def test_a_clean_checkout_names_its_commit_and_lock(checkout: Path) -> None:
    found = provenance(checkout)
    assert found["git"] == {"commit": git(checkout, "rev-parse", "HEAD"), "dirty": False}
    assert found["lock_sha256"] == hashlib.sha256(b"prefect==3.9.1\n").hexdigest()


def test_a_changed_tracked_file_makes_it_dirty_and_an_untracked_one_does_not(checkout: Path) -> None:
    (checkout / "notes.txt").write_text("untracked")
    assert provenance(checkout)["git"]["dirty"] is False
    (checkout / "requirements.lock").write_text("prefect==3.9.2\n")
    assert provenance(checkout)["git"]["dirty"] is True


def test_code_inside_somebody_elses_checkout_claims_no_commit(checkout: Path) -> None:
    inside = checkout / "site-packages"
    inside.mkdir()
    assert provenance(inside)["git"] is None
    assert provenance(inside)["lock_sha256"] is None


def test_a_machine_without_git_is_no_error(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    assert provenance(checkout)["git"] is None


def test_packages_are_named_with_versions_and_no_path_of_this_machine_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found = provenance()
    assert found["packages"]["prefect"]
    assert str(PROJECT) not in str(found)
    assert str(Path.home()) not in str(found)
