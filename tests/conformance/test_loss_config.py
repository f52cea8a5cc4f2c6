"""No key of a `loss_config` is dropped on the way: each is refused, or changes the gradient.

Bridges to a provider have dropped it without a word, so the check itself is checked: against a gateway that drops it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from conformance_caller import Whitney
from loss_config import KEYS, PROBES, datums, request, require_key_reaches_loss, role_of

from gateway.emulation import RULES
from gateway.launch import start_gateway
from whitney.routes import ROUTES

EMULATED = ["modal", "tinker"]
DROPS = {"faults": [{"action": "drop_loss_config", "times": 1_000_000}]}


@contextmanager
def calling(folder: Path, provider: str, *arguments: str) -> Iterator[Whitney]:
    """A caller of an embedded gateway with the engine and its tiny model."""
    with start_gateway(folder, provider=provider, extra_args=arguments) as gateway:
        headers = {"authorization": f"Bearer {gateway.api_key}"}
        with httpx.Client(base_url=gateway.base_url, headers=headers, timeout=90, trust_env=False) as http:
            caller = Whitney(http, ROUTES)
            yield caller
            caller.clean_up()


@pytest.fixture(scope="module", params=EMULATED)
def emulated(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whitney]:
    with calling(tmp_path_factory.mktemp(request.param), request.param) as caller:
        yield caller


@pytest.fixture(scope="module", params=["local", "modal"])
def dropping(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Whitney]:
    folder = tmp_path_factory.mktemp(f"{request.param}-dropping")
    (folder / "faults.json").write_text(json.dumps(DROPS))
    with calling(folder, request.param, "--faults", str(folder / "faults.json")) as caller:
        yield caller


def takes(whitney: Any, loss: str, key: str) -> bool:
    return key in RULES[whitney.row["provider"]].loss_config_keys.get(loss, ())


def test_every_key_that_can_matter_is_probed() -> None:
    # A policy has no values: ppo takes value_clip as the backends do, and nothing comes of it.
    of_no_effect = {("ppo", "value_clip")}
    taken = {(loss, key) for rules in RULES.values() for loss, keys in rules.loss_config_keys.items() for key in keys}
    assert taken - of_no_effect == set(KEYS)


@pytest.mark.parametrize(("loss", "key"), KEYS)
def test_a_key_changes_the_gradient_or_is_refused(whitney: Any, loss: str, key: str) -> None:
    require_reaches_or_is_refused(whitney, loss, key)


@pytest.mark.parametrize(("loss", "key"), KEYS)
def test_a_key_changes_the_gradient_or_is_refused_on_every_emulated_provider(
    emulated: Whitney, loss: str, key: str
) -> None:
    require_reaches_or_is_refused(emulated, loss, key)


def require_reaches_or_is_refused(whitney: Any, loss: str, key: str) -> None:
    if takes(whitney, loss, key):
        require_key_reaches_loss(whitney, loss, key)
        return
    role = role_of(loss)
    if role == "critic":
        answer = whitney.send("create_run", whitney.run_body(role=role), session_id=whitney.open_session())
    else:
        payload = request(datums(loss), loss, {key: PROBES[loss][key][1]})
        answer = whitney.post(whitney.open_run(), 0, "forward_backward", payload)
    assert answer.status_code == 422, answer.text


@pytest.mark.parametrize(("loss", "key"), KEYS)
def test_the_check_finds_a_gateway_that_drops_the_key(dropping: Whitney, loss: str, key: str) -> None:
    if not takes(dropping, loss, key):
        pytest.skip(f"{dropping.row['provider']} refuses it")
    with pytest.raises(AssertionError, match=f"{loss} with {key}"):
        require_key_reaches_loss(dropping, loss, key)
