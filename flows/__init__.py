"""Each algorithm is a flow: `await flows.grpo(config)` trains and returns the run's summary.

`FLOWS` names them all; `flows.config` holds what each takes, `flows.load_config` reads it from TOML. `flows.pipeline`
trains several, one after another.
"""

from collections.abc import Coroutine
from typing import Any

from prefect.flows import Flow

from flows.cispo import cispo
from flows.custom import custom
from flows.dapo import dapo
from flows.dpo import dpo
from flows.dppo import dppo
from flows.drgrpo import drgrpo
from flows.dro import dro
from flows.grpo import grpo
from flows.grpo_len_norm import grpo_len_norm
from flows.grpo_nostd import grpo_nostd
from flows.gspo import gspo
from flows.maxrl import maxrl
from flows.opd import opd
from flows.opsd import opsd
from flows.pipeline import pipeline
from flows.ppo import ppo
from flows.ppo_critic import ppo_critic
from flows.reinforce import reinforce
from flows.reinforce_pp import reinforce_pp
from flows.rloo import rloo
from flows.sapo import sapo
from flows.sdpo import sdpo
from flows.sft import sft
from flows.ttt import ttt

FLOWS: dict[str, Flow[..., Coroutine[Any, Any, dict[str, Any]]]] = {
    flow.name: flow
    for flow in (
        sft,
        grpo,
        grpo_nostd,
        grpo_len_norm,
        drgrpo,
        reinforce,
        ppo,
        ppo_critic,
        cispo,
        gspo,
        dppo,
        dro,
        dapo,
        sapo,
        rloo,
        reinforce_pp,
        maxrl,
        opd,
        opsd,
        sdpo,
        dpo,
        ttt,
        custom,
    )
}

__all__ = [
    "FLOWS",
    "cispo",
    "custom",
    "dapo",
    "dpo",
    "dppo",
    "drgrpo",
    "dro",
    "grpo",
    "grpo_len_norm",
    "grpo_nostd",
    "gspo",
    "maxrl",
    "opd",
    "opsd",
    "pipeline",
    "ppo",
    "ppo_critic",
    "reinforce",
    "reinforce_pp",
    "rloo",
    "sapo",
    "sdpo",
    "sft",
    "ttt",
]
