"""Providers differ in what they take: the table, checked entry by entry over HTTP."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from gateway.emulation import RULES

CLIP = {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2}
EVERYWHERE = {"cross_entropy", "importance_sampling", "ppo", "cispo"}
LOSSES = {
    "modal": EVERYWHERE | {"gspo", "dppo", "ppo_critic"},
    "tinker": EVERYWHERE | {"dro"},
    "local": EVERYWHERE | {"gspo", "dppo", "dro", "sapo", "ppo_critic"},
}
TABLE = [(provider, loss) for provider in LOSSES for loss in sorted(LOSSES["local"])]
CONFIGS: dict[str, dict[str, float]] = {
    "ppo_critic": {"value_clip": 0.2},
    "ppo": CLIP | {"value_clip": 0.2},
    "cispo": CLIP,
    "gspo": CLIP,
    "dppo": {"delta_low": 0.2, "delta_high": 0.2},
    "dro": {"beta": 0.1},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
}


def _role(provider: str, loss: str) -> str:
    """The role of a run that could be trained by `loss`, where the provider has such runs."""
    return "critic" if loss == "ppo_critic" and loss in LOSSES[provider] else "policy"


async def _post(caller: Any, loss: str, payload: Any) -> Any:
    run_id = await caller.open_run(role=_role(caller.gateway.capabilities()[0].provider, loss))
    return await caller.post(run_id, 0, "forward_backward", payload)


@pytest.mark.parametrize(("provider", "loss"), TABLE)
async def test_a_provider_takes_its_losses_and_refuses_the_others_with_a_list(
    start: Any, payloads: Any, provider: str, loss: str
) -> None:
    async with start(rules=provider) as caller:
        answer = await _post(caller, loss, payloads.training(loss))
        if loss in LOSSES[provider]:
            assert answer.status_code == 202, answer.text
        else:
            error = answer.json()["error"]
            assert answer.status_code == 422
            assert error["details"] == {"path": "payload.loss_function", "known": sorted(LOSSES[provider])}
            assert f"{provider} has no loss" in error["message"]


@pytest.mark.parametrize("provider", LOSSES)
async def test_config_keys_are_scalars_on_modal_and_local_and_none_on_tinker(
    start: Any, payloads: Any, provider: str
) -> None:
    async with start(rules=provider) as caller:
        for loss in LOSSES[provider] & CONFIGS.keys():
            answer = await _post(caller, loss, payloads.training(loss, config=CONFIGS[loss]))
            if provider == "tinker":
                assert answer.status_code == 422
                assert "its keys: none" in answer.json()["error"]["message"]
            else:
                assert answer.status_code == 202, answer.text


@pytest.mark.parametrize(("provider", "taken"), [("modal", False), ("tinker", True), ("local", True)])
@pytest.mark.parametrize("loss", ["ppo", "cispo"])
async def test_the_clip_range_travels_as_tensors_where_the_provider_reads_them(
    start: Any, payloads: Any, floats: Any, *, provider: str, taken: bool, loss: str
) -> None:
    tensors = {"clip_low_threshold": floats(0, 0.8, 0.8), "clip_high_threshold": floats(0, 1.2, 1.2)}
    async with start(rules=provider) as caller:
        answer = await _post(caller, loss, payloads.training(loss, **tensors))
        assert answer.status_code == (202 if taken else 422), answer.text


async def test_a_clip_range_in_both_forms_is_refused(caller: Any, payloads: Any, floats: Any) -> None:
    payload = payloads.training("ppo", config=CLIP, clip_low_threshold=floats(0, 0.8, 0.8))
    error = (await _post(caller, "ppo", payload)).json()["error"]
    assert "one of the two forms" in error["message"]


async def test_on_tinker_a_refused_clip_key_says_where_the_range_belongs(start: Any, payloads: Any) -> None:
    async with start(rules="tinker") as caller:
        error = (await _post(caller, "ppo", payloads.training("ppo", config=CLIP))).json()["error"]
        assert "tensors on the datum" in error["message"]


@pytest.mark.parametrize(("provider", "taken"), [("modal", False), ("tinker", True), ("local", True)])
async def test_soft_targets_are_taken_by_tinker_and_local(
    start: Any, payloads: Any, floats: Any, provider: str, taken: bool
) -> None:
    targets = {"dtype": "int64", "shape": [3, 2], "values": [5, 6, 7, 8, 9, 10]}
    payload = payloads.training(target_tokens=targets, weights=floats(0, 0, 0.5, 0.5, 0.9, 0.1, shape=[3, 2]))
    async with start(rules=provider) as caller:
        answer = await _post(caller, "cross_entropy", payload)
        assert answer.status_code == (202 if taken else 422), answer.text


async def test_soft_targets_belong_to_cross_entropy_and_agree_in_shape(caller: Any, payloads: Any, floats: Any) -> None:
    targets = {"dtype": "int64", "shape": [3, 2], "values": [5, 6, 7, 8, 9, 10]}
    for loss in ("cross_entropy", "ppo"):
        answer = await _post(caller, loss, payloads.training(loss, target_tokens=targets))
        assert answer.status_code == 422
        assert ".shape" in answer.json()["error"]["details"]["path"]


@pytest.mark.parametrize("provider", ["local", "tinker", "modal"])
async def test_of_an_optimizer_modal_honours_the_learning_rate_alone(start: Any, provider: str) -> None:
    sent = {"name": "adamw", "learning_rate": 0.5, "beta1": 0.1, "beta2": 0.2, "eps": 0.3, "weight_decay": 0.4}
    sent["grad_clip_norm"] = 7.0
    async with start(rules=provider) as caller:
        await caller.do(await caller.open_run(), 0, "optim_step", {"optimizer": sent})
        (work,) = caller.provider.batches[0]
        if provider == "modal":
            assert work.payload["optimizer"] == {
                "name": "adamw",
                "learning_rate": 0.5,
                "beta1": 0.9,
                "beta2": 0.95,
                "eps": 1e-8,
                "weight_decay": 0.0,
                "grad_clip_norm": 1.0,
            }
        else:
            assert work.payload["optimizer"] == sent


async def test_on_modal_two_optimizers_under_one_seq_id_are_still_two_bodies(start: Any) -> None:
    async with start(rules="modal") as caller:
        run_id = await caller.open_run()
        await caller.do(run_id, 0, "optim_step", {"optimizer": {"learning_rate": 0.5}})
        other = await caller.post(run_id, 0, "optim_step", {"optimizer": {"learning_rate": 0.5, "beta1": 0.1}})
        assert other.json()["error"]["code"] == "seq_conflict"


@pytest.mark.parametrize("provider", ["modal", "tinker"])
@pytest.mark.parametrize("reduction", ["sum", "mean"])
async def test_rows_say_whom_they_emulate_and_how_losses_are_reduced(start: Any, provider: str, reduction: str) -> None:
    async with start(rules=provider, reduction=reduction) as caller:
        (row,) = (await caller.get("/capabilities"))["rows"]
        assert (row["provider"], row["emulated"], row["loss_reduction"]) == (provider, True, reduction)
        await caller.open_run()
        assert caller.provider.created[0].reduction == reduction


def test_the_engine_itself_is_not_an_emulation() -> None:
    assert not RULES["local"].emulated


DEFAULTS = {
    "ppo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "gspo": {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
    "dppo": {"delta_low": 0.2, "delta_high": 0.2},
    "dro": {"beta": 0.05},
    "sapo": {"tau_pos": 1.0, "tau_neg": 1.05},
    "ppo_critic": {"value_clip": 0.2},
}
CISPO_HIGH = {"local": 4.0, "tinker": 4.0, "modal": 5.0}


@pytest.mark.parametrize(("provider", "loss"), [(p, loss) for p, loss in TABLE if loss in LOSSES[p]])
async def test_the_provider_is_handed_every_default_of_a_loss(
    start: Any, payloads: Any, provider: str, loss: str
) -> None:
    async with start(rules=provider) as caller:
        assert (await _post(caller, loss, payloads.training(loss))).status_code == 202
        while not caller.provider.batches:
            await asyncio.sleep(0)
        (work,) = caller.provider.batches[0]
        cispo = {"clip_low_threshold": 0.0, "clip_high_threshold": CISPO_HIGH[provider]}
        assert work.payload["loss_config"] == (cispo if loss == "cispo" else DEFAULTS.get(loss, {}))


async def test_what_was_sent_comes_before_the_default_which_comes_before_nothing(start: Any, payloads: Any) -> None:
    async with start(rules="modal") as caller:
        payload = payloads.training("cispo", config={"clip_low_threshold": 0.8})
        await caller.do(await caller.open_run(), 0, "forward_backward", payload)
        (work,) = caller.provider.batches[0]
        assert work.payload["loss_config"] == {"clip_low_threshold": 0.8, "clip_high_threshold": 5.0}


async def test_a_critic_on_a_provider_without_its_loss_is_refused_before_anything_is_allocated(start: Any) -> None:
    async with start(rules="tinker") as caller:
        session_id = await caller.open_session()
        answer = await caller.send("POST", f"/sessions/{session_id}/runs", caller.run_body(role="critic"))
        assert answer.status_code == 422
        assert answer.json()["error"]["details"]["path"] == "role"
        assert "ppo_critic" in answer.json()["error"]["message"]
        assert caller.provider.created == []


@pytest.mark.parametrize("provider", ["local", "modal"])
@pytest.mark.parametrize("loss", sorted(LOSSES["local"]))
async def test_a_run_takes_the_losses_of_its_role_alone(start: Any, payloads: Any, provider: str, loss: str) -> None:
    async with start(rules=provider) as caller:
        other = "policy" if loss == "ppo_critic" else "critic"
        run_id = await caller.open_run(role=other)
        assert caller.provider.created[0].role == other
        answer = await caller.post(run_id, 0, "forward_backward", payloads.training(loss))
        assert answer.status_code == 422
        error = answer.json()["error"]
        assert error["details"]["path"] == "payload.loss_function"
        if loss in LOSSES[provider]:
            known = ["ppo_critic"] if other == "critic" else sorted(LOSSES[provider] - {"ppo_critic"})
            assert error["details"]["known"] == known
            assert f"role is {other}" in error["message"]


async def test_a_critic_is_not_snapshot_for_sampling_and_the_refusal_consumes_no_seq_id(
    caller: Any, payloads: Any
) -> None:
    run_id = await caller.open_run(role="critic")
    answer = await caller.post(run_id, 0, "save_weights_for_sampler", {})
    assert answer.status_code == 422
    assert answer.json()["error"]["details"]["path"] == "kind"
    assert "role is critic" in answer.json()["error"]["message"]
    result = await caller.do(run_id, 0, "forward_backward", payloads.training("ppo_critic"))
    (output,) = result["loss_outputs"]
    assert output.keys() == {"values"}
    assert output["values"]["shape"] == [3]


async def test_a_critics_datum_may_carry_target_tokens_and_must_carry_values_and_returns(
    caller: Any, payloads: Any, floats: Any
) -> None:
    run_id = await caller.open_run(role="critic")
    targets = {"dtype": "int64", "shape": [3], "values": [6, 7, 8]}
    await caller.do(run_id, 0, "forward_backward", payloads.training("ppo_critic", target_tokens=targets))
    for name in ("values", "returns", "weights"):
        answer = await caller.post(run_id, 1, "forward", payloads.training("ppo_critic", **{name: None}))
        assert answer.json()["error"]["details"]["path"] == f"payload.data.0.loss_inputs.{name}"
    answer = await caller.post(run_id, 1, "forward", payloads.training("ppo_critic", advantages=floats(0, 1, 1)))
    assert "takes no such loss input" in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    ("kind", "field", "own", "wanted", "taken"),
    [
        ("save_state", "state_id", "critic", "critic", True),
        ("save_state", "state_id", "critic", "policy", False),
        ("save_state", "state_id", "policy", "critic", False),
        ("export_lora", "artifact_id", "critic", "critic", True),
        ("export_lora", "artifact_id", "critic", "policy", False),
        ("export_lora", "artifact_id", "policy", "critic", True),
    ],
)
async def test_a_run_starts_from_files_of_its_role_and_a_critic_from_a_policys_adapter(
    caller: Any, *, kind: str, field: str, own: str, wanted: str, taken: bool
) -> None:
    file_id = (await caller.do(await caller.open_run(role=own), 0, kind, {}))[field]
    body = caller.run_body(role=wanted, initial={field: file_id})
    answer = await caller.send("POST", f"/sessions/{await caller.open_session()}/runs", body)
    assert answer.status_code == (200 if taken else 422), answer.text
    if not taken:
        assert answer.json()["error"]["details"]["path"] == f"initial.{field}"
        assert f"asks for the role {wanted}" in answer.json()["error"]["message"]
