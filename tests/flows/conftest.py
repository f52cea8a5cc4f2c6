"""What the tests of the flows share: a gateway of each kind, a taught start on each, and one run of every algorithm."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from flow_probes import GatewayOf, Taught, Trained, Visit, lines
from tiny_configs import fixed_config, sft_config, tiny_config

from gateway.launch import GatewayProcess, start_gateway

# What a gateway is started with beside the model; the provider is its name's, or local.
OPTIONS = {"mean": ["--reduction", "mean"]}


@pytest.fixture(scope="session")
def gateway_of(
    prefect_server: str, tiny_gateway: GatewayProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GatewayOf]:
    """A gateway by its kind ("local", "modal", "tinker", "mean"), started when it is first asked for."""
    with ExitStack() as stack:
        running = {"local": tiny_gateway}

        def gateway_of(kind: str) -> GatewayProcess:
            if kind not in running:
                provider = "local" if kind in OPTIONS else kind
                options = ["--deterministic", *OPTIONS.get(kind, [])]
                folder = tmp_path_factory.mktemp(f"gateway-{kind}")
                running[kind] = stack.enter_context(start_gateway(folder, provider=provider, extra_args=options))
            return running[kind]

        yield gateway_of


@pytest.fixture
def visit(gateway_of: GatewayOf, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Visit:
    """Makes the environment name a gateway, in an empty working directory."""
    monkeypatch.chdir(tmp_path)

    def visit(kind: str) -> GatewayProcess:
        gateway = gateway_of(kind)
        monkeypatch.setenv("WHITNEY_BASE_URL", gateway.base_url)
        monkeypatch.setenv("WHITNEY_API_KEY", gateway.api_key)
        return gateway

    return visit


@pytest.fixture
def local(visit: Visit) -> GatewayProcess:
    """The local gateway, as the environment names it."""
    return visit("local")


@pytest.fixture(scope="session")
def _taught_states() -> dict[str, dict[str, Any]]:
    return {}


@pytest.fixture
def taught(visit: Visit, tmp_path_factory: pytest.TempPathFactory, _taught_states: dict[str, dict[str, Any]]) -> Taught:
    """The summary of a short supervised run on a gateway, with its `state_id`.

    The tiny model's first words never end and are worth the same; after this it answers with numbers, some of them
    right, and stops: groups have a signal.
    """

    async def taught(kind: str) -> dict[str, Any]:
        import flows

        visit(kind)
        if kind not in _taught_states:
            provider = "local" if kind in OPTIONS else kind
            config = sft_config(
                tmp_path_factory.mktemp("taught"),
                model={"name": "tiny", "provider": provider},
                data={"source": "addition-1digit"},
                cycles=6,
                save_every=6,
                evaluation={"enabled": False},
            )
            summary = await flows.FLOWS["sft"](config)
            (block,) = lines(Path(summary["run_folder"]) / "states.jsonl")
            _taught_states[kind] = {**summary, "state_id": block["state_id"]}
        return _taught_states[kind]

    return taught


@pytest.fixture(scope="session")
def _trained_runs() -> dict[tuple[str, str], dict[str, Any]]:
    return {}


@pytest.fixture
def trained(
    taught: Taught, tmp_path_factory: pytest.TempPathFactory, _trained_runs: dict[tuple[str, str], dict[str, Any]]
) -> Trained:
    """The summary of one short run of an algorithm on a provider, run when it is first asked for.

    On the local one completions have a fixed length, and what a run costs is known beforehand.
    """

    async def trained(algorithm: str, provider: str) -> dict[str, Any]:
        import flows

        state_id = (await taught(provider))["state_id"]
        if (algorithm, provider) not in _trained_runs:
            folder = tmp_path_factory.mktemp("trained")
            if provider == "local":
                # Two cycles tell what a run costs once from what each cycle costs; one is enough to have been trained.
                config = fixed_config(algorithm, folder, teacher=state_id)
            else:
                config = tiny_config(algorithm, folder, provider=provider, state_id=state_id, cycles=1)
            _trained_runs[algorithm, provider] = await flows.FLOWS[algorithm](config)
        return _trained_runs[algorithm, provider]

    return trained
