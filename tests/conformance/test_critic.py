"""A critic run, by the contract: values instead of log-probs, a loss of its own, nothing to sample."""

from __future__ import annotations

from typing import Any

import pytest
from loss_config import datums, request

from gateway.emulation import RULES

VALUES = request(datums("ppo_critic"), "ppo_critic", {"value_clip": 5.0})
LOGPROBS = request(datums("cross_entropy"), "importance_sampling", {})


@pytest.fixture
def session_id(whitney: Any) -> str:
    session_id: str = whitney.open_session()
    if "ppo_critic" not in RULES[whitney.row["provider"]].losses:
        answer = whitney.send("create_run", whitney.run_body(role="critic"), session_id=session_id)
        assert answer.status_code == 422, answer.text
        pytest.skip(f"{whitney.row['provider']} has no critic, and refuses one")
    return session_id


def test_a_critic_answers_values_of_the_inputs_length_with_zeros_where_nothing_is_trained(
    whitney: Any, session_id: str
) -> None:
    critic = whitney.open_run(session_id, role="critic")
    for seq_id, kind in enumerate(["forward", "forward_backward"]):
        result = whitney.do(critic, seq_id, kind, VALUES)
        for output, datum in zip(result["loss_outputs"], VALUES["data"], strict=True):
            assert output.keys() == {"values"}
            assert output["values"]["shape"] == [len(datum["input"]["token_ids"])]
            assert output["values"]["values"][:3] == [0, 0, 0]
        assert {"loss", "value_mean", "explained_variance", "clip_fraction"} <= result["metrics"].keys()
    assert whitney.do(critic, 2, "optim_step", {"optimizer": {"learning_rate": 0.01}})["metrics"]["grad_norm"] > 0


def test_a_critic_resumes_from_its_state_and_starts_from_its_artifact(whitney: Any, session_id: str) -> None:
    critic = whitney.open_run(session_id, role="critic")
    whitney.do(critic, 0, "forward_backward", VALUES)
    whitney.do(critic, 1, "optim_step", {"optimizer": {"learning_rate": 0.01}})
    files = whitney.do(critic, 2, "save_state", {}) | whitney.do(critic, 3, "export_lora", {})
    trained = whitney.do(critic, 4, "forward", VALUES)
    for field in ("state_id", "artifact_id"):
        again = whitney.open_run(session_id, role="critic", initial={field: files[field]})
        assert whitney.do(again, 0, "forward", VALUES) == trained
        answer = whitney.send("create_run", whitney.run_body(initial={field: files[field]}), session_id=session_id)
        assert answer.status_code == 422, "a policy does not start from a critic"
    assert whitney.do(whitney.open_run(session_id, role="critic"), 0, "forward", VALUES) != trained


def test_what_a_role_has_no_use_for_is_refused_and_consumes_no_seq_id(whitney: Any, session_id: str) -> None:
    critic, policy = whitney.open_run(session_id, role="critic"), whitney.open_run(session_id)
    refused = [
        (critic, "save_weights_for_sampler", {}),
        (critic, "forward_backward", LOGPROBS),
        (policy, "forward_backward", VALUES),
    ]
    for run_id, kind, payload in refused:
        answer = whitney.post(run_id, 0, kind, payload)
        assert answer.status_code == 422, answer.text
        assert "role" in answer.json()["error"]["message"]
    whitney.do(critic, 0, "forward_backward", VALUES)
    whitney.do(policy, 0, "forward_backward", LOGPROBS)
