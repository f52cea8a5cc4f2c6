"""The provider without a model: its files are as real, and as reproducible, as the engine's."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.providers.base import RunSpec, Work
from gateway.providers.delay import DelayProvider, Delays


def _spec(run_id: str = "run", initial: Path | None = None) -> RunSpec:
    return RunSpec(run_id, "tiny", "policy", rank=4, alpha=8.0, seed=1, initial=initial)


async def _trained() -> DelayProvider:
    provider = DelayProvider(("tiny",), Delays(default=0, sample=0))
    await provider.create_run(_spec())
    await provider.execute([Work("run", "optim_step", {"optimizer": {"learning_rate": 0.5}})])
    return provider


@pytest.mark.parametrize(("kind", "suffix"), [("save_state", ".safetensors"), ("export_lora", ".tar.gz")])
async def test_what_was_trained_alike_is_written_alike_to_the_byte(tmp_path: Path, kind: str, suffix: str) -> None:
    written = set()
    for number in range(8):
        path = tmp_path / f"{number}{suffix}"
        await (await _trained()).execute([Work("run", kind, {}, output=path)])
        written.add(path.read_bytes())
    assert len(written) == 1


async def test_a_state_goes_on_with_its_steps_and_an_artifact_with_its_weights_alone(tmp_path: Path) -> None:
    provider = await _trained()
    state, artifact = tmp_path / "s.safetensors", tmp_path / "a.tar.gz"
    await provider.execute([Work("run", "save_state", {}, output=state)])
    await provider.execute([Work("run", "export_lora", {}, output=artifact)])
    steps = []
    for run_id, initial in (("from state", state), ("from artifact", artifact)):
        await provider.create_run(_spec(run_id, initial))
        (outcome,) = await provider.execute([Work(run_id, "optim_step", {"optimizer": {"learning_rate": 0.5}})])
        assert outcome.result is not None
        steps.append(outcome.result["metrics"]["step"])
    assert steps == [2, 1]


@pytest.mark.parametrize("name", ["state.safetensors", "adapter.tar.gz"])
async def test_a_file_of_another_provider_is_refused_in_a_sentence(tmp_path: Path, name: str) -> None:
    foreign = tmp_path / name
    foreign.write_bytes(b"not of ours")
    with pytest.raises(ValueError, match=f"{name} was not written by the delay provider"):
        await DelayProvider().create_run(_spec(initial=foreign))
