"""docs/whitney-api.md says what the code does."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from scripted_endpoint import settings

from whitney import errors, labels
from whitney.client import POLL_MARGIN_S
from whitney.retry import RetryPolicy, retryable
from whitney.routes import ROUTES
from whitney.types import PAYLOADS, RUN_KINDS, SAMPLER_KINDS
from whitney.types.base import WireRequest

PAGE = (Path(__file__).parents[2] / "docs" / "whitney-api.md").read_text(encoding="utf-8")


def table(heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, as cells without their backticks."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip().strip("`") for cell in row] for row in rows[2:]]


def test_the_table_of_routes_is_the_clients_and_the_gateways() -> None:
    documented = {name: (verb, path) for name, verb, path, *_ in table("Routes")}
    assert documented == {name: (route.method, route.template) for name, route in ROUTES.items()}
    assert [row[0] for row in table("Routes")] == list(ROUTES)


def test_every_route_says_whether_it_is_given_or_assumed() -> None:
    standings = {row[0]: row[3] for row in table("Routes")}
    assert all(re.match(r"(given|assumed)\b", standing) for standing in standings.values())
    given = {name for name, standing in standings.items() if standing.startswith("given")}
    assert given == {"capabilities", "create_session", "close_session", "create_run", "finish_run", "cancel_run"}


def test_the_kinds_are_all_there_on_the_right_route() -> None:
    on = {row[0]: row[1] for row in table("Operations")}
    assert on == dict.fromkeys(RUN_KINDS, "run") | dict.fromkeys(SAMPLER_KINDS, "sampler")


TOKENS = '{"token_ids": [5, 17]}'
TENSOR = '{"dtype": "float32", "shape": [2], "values": [0, 1]}'
WEIGHTED = f'{{"input": {TOKENS}, "loss_inputs": {{"weights": {TENSOR}}}}}'


@pytest.mark.parametrize("row", table("Operations"), ids=lambda row: row[0])
def test_a_payload_that_is_shown_is_one_and_shows_every_field_with_its_default(row: list[str]) -> None:
    shown = row[2] if row[2] != "the same" else {one[0]: one[2] for one in table("Operations")}["forward"]
    for short, written in {"DATUM, …": WEIGHTED, "TOKENS": TOKENS, "[…]": "[]"}.items():
        shown = shown.replace(short, written)
    parts = [PAYLOADS[row[0]].model_validate_json(shown)]
    for part in parts:
        parts += [value for _, value in part if isinstance(value, WireRequest)]
        fields = type(part).model_fields
        assert part.model_fields_set == set(fields)
        defaults = {name: one.get_default(call_default_factory=True) for name, one in fields.items()}
        optional = {name for name, one in fields.items() if not one.is_required()}
        assert {name: getattr(part, name) for name in optional} == {name: defaults[name] for name in optional}


def test_every_exception_is_explained() -> None:
    kinds = {
        kind.__name__ for kind in vars(errors).values() if isinstance(kind, type) and kind.__module__ == errors.__name__
    }
    explained = {row[0] for row in table("Errors")}
    assert explained == kinds - {"WhitneyError", "OperationError"}, "the two that are only raised as one of the others"


def test_the_labels_are_the_codes() -> None:
    documented = {row[0] for row in table("Ending a session")}
    assert documented == {labels.FLOW_RUN, labels.ROOT_FLOW_RUN, labels.ATTEMPT, labels.ROOT_ATTEMPT, labels.CREATE_KEY}


def test_the_numbers_are_the_defaults() -> None:
    policy, defaults = RetryPolicy(), settings()
    for sentence in (
        f"min({policy.longest_s:g} s, {policy.base_s:g} s · 2ⁿ)",
        f"up\nto {policy.retry_after_cap_s:g} s",
        f"deadline of {defaults.retry_deadline_s:g} s",
        f"given up after {defaults.first_contact_s:g} s",
        f"`wait_s` of {defaults.wait_s:g} s",
        f"read for {POLL_MARGIN_S:g} s longer",
        f"over {defaults.compress_above_bytes // 1024} KiB",
    ):
        assert sentence in PAGE
    assert (policy.deadline_s, policy.retry_after_cap_s) == (defaults.retry_deadline_s, defaults.retry_after_cap_s)


@pytest.mark.parametrize("variable", sorted(set(re.findall(r"WHITNEY_([A-Z_]+)`", PAGE))))
def test_every_variable_it_names_is_a_setting(variable: str) -> None:
    assert variable.lower() in type(settings()).model_fields


def test_what_it_says_is_repeated_is() -> None:
    rows = {row[0]: row[1] for row in table("When a request is repeated")}
    assert rows["408, 425, 429, any 5xx"] == "yes"
    assert all(retryable(status, None) for status in (408, 425, 429, *range(500, 600)))
    assert not any(retryable(status, None) for status in range(300, 500) if status not in (408, 425, 429))
