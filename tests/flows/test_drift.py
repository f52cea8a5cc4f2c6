"""What counts as a change between two attempts of a run: a pure question about two records."""

from __future__ import annotations

import re
from typing import Any

import pytest

from flows.checks.drift import ALLOW_DRIFT, changes, require_no_drift, with_later_fields
from flows.config import ConfigError, GrpoConfig

RECORD: dict[str, Any] = {
    "algorithm": "grpo",
    "config": {"save_every": 1, "name": "a", "model": {"name": "tiny"}, "optimizer": {"learning_rate": 1e-3}},
    "data": {"description": "12 sums", "fingerprint": "f1"},
    "template_sha256": "t1",
    "tokenizer_sha256": "k1",
    "capability": {"max_sequence_tokens": 64, "operations": ["sample"], "loss_reduction": "sum"},
    "git": {"commit": "abc"},
}


def with_change(path: str, value: object) -> dict[str, Any]:
    *sections, last = path.split(".")
    changed: dict[str, Any] = {key: dict(part) if isinstance(part, dict) else part for key, part in RECORD.items()}
    table = changed
    for section in sections:
        table[section] = dict(table[section])
        table = table[section]
    table[last] = value
    return changed


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("config.optimizer.learning_rate", 1e-2),
        ("data.fingerprint", "f2"),
        ("template_sha256", "t2"),
        ("tokenizer_sha256", "k2"),
        ("capability.max_sequence_tokens", 32),
        ("capability.loss_reduction", "mean"),
    ],
)
def test_what_decides_what_is_trained_is_compared_and_may_change_when_it_is_meant(
    path: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = with_change(path, value)
    assert list(changes(RECORD, now)) == [path]
    with pytest.raises(ConfigError, match=rf"\n  {re.escape(path.removeprefix('config.'))}: "):
        require_no_drift(RECORD, now)
    monkeypatch.setenv(ALLOW_DRIFT, "1")
    assert list(require_no_drift(RECORD, now)) == [path]


@pytest.mark.parametrize("path", ["config.name", "data.description", "capability.operations", "git.commit"])
def test_what_does_not_is_not(path: str) -> None:
    assert changes(RECORD, with_change(path, "other")) == {}


@pytest.mark.parametrize(
    ("path", "value"), [("config.save_every", 2), ("config.model.name", "x"), ("algorithm", "rloo")]
)
def test_what_finished_blocks_are_matched_by_may_not_change_even_if_it_is_meant(
    path: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ALLOW_DRIFT, "1")
    with pytest.raises(ConfigError, match="cannot change within it"):
        require_no_drift(RECORD, with_change(path, value))


def test_a_field_that_was_not_there_before_is_a_change() -> None:
    assert changes(RECORD, with_change("config.whiten", True)) == {"config.whiten": (None, True)}


def test_a_run_of_an_older_version_goes_on_though_fields_have_come_since() -> None:
    now = {**RECORD, "config": GrpoConfig().model_dump(mode="json")}
    older = with_change("config", GrpoConfig().model_dump(mode="json"))
    del older["config"]["skip_unchanged"]
    older["config"]["evaluation"] = {"samples": 4, "enabled": True}
    assert changes(older, now) != {}
    assert changes(with_later_fields(older, GrpoConfig), now) == {}
    older["config"]["evaluation"]["samples"] = 2
    assert list(changes(with_later_fields(older, GrpoConfig), now)) == ["config.evaluation.samples"]


def test_a_record_that_this_version_cannot_read_is_compared_as_it_is() -> None:
    assert with_later_fields(RECORD | {"config": {"gone": 1}}, GrpoConfig)["config"] == {"gone": 1}
