"""What outlives a run: states that resume bit for bit, and adapters that other libraries read."""

import json
import resource
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from engine_harness import TestRun, engine, rl_data, sampling, some_tokens, training
from peft import PeftModel
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM

import models
from gateway.providers.files import METADATA_KEY
from gateway.providers.local.engine import Engine
from gateway.providers.local.errors import EngineError

PROMPT = some_tokens(1, 9)


def trained(run: TestRun, steps: int = 2) -> TestRun:
    for seed in range(steps):
        run.train(rl_data(seed), "importance_sampling")
        run.step(0.02)
    return run


def test_a_resumed_run_takes_the_next_step_bit_for_bit(run: TestRun, tmp_path: Path) -> None:
    trained(run).do("save_state", output=tmp_path / "state.safetensors")
    resumed = TestRun.create(engine(tmp_path), "resumed", initial=tmp_path / "state.safetensors")
    assert torch.equal(resumed.parameters.flat, run.parameters.flat)
    for one in (run, resumed):
        one.train(rl_data(7), "ppo")
    assert run.step(0.02) == resumed.step(0.02)
    assert torch.equal(resumed.parameters.flat, run.parameters.flat)


def test_a_gradient_gathered_but_not_yet_applied_is_part_of_the_state(run: TestRun, tmp_path: Path) -> None:
    run.train(rl_data(3), "ppo")
    run.do("save_state", output=tmp_path / "state.safetensors")
    resumed = TestRun.create(run.engine, "resumed", initial=tmp_path / "state.safetensors")
    assert run.step() == resumed.step()


def test_without_the_optimizer_only_the_weights_are_taken(run: TestRun, tmp_path: Path) -> None:
    trained(run).train(rl_data(3), "ppo")
    run.do("save_state", output=tmp_path / "state.safetensors")
    fresh = TestRun.create(run.engine, "fresh", initial=tmp_path / "state.safetensors", with_optimizer=False)
    assert torch.equal(fresh.parameters.flat, run.parameters.flat)
    assert fresh.error("optim_step", {"optimizer": {"learning_rate": 1e-3}})[0] == "no_gradient"
    fresh.train(rl_data(3), "ppo")
    assert fresh.step()["step"] == 1


def test_saving_again_replaces_the_file_and_leaves_no_other(run: TestRun, tmp_path: Path) -> None:
    folder = tmp_path / "states"
    for _ in range(2):
        run.do("save_state", output=folder / "state.safetensors")
    assert [file.name for file in folder.iterdir()] == ["state.safetensors"]


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ({"rank": 8}, "trained with lora.rank = 4, the run asks for 8"),
        ({"alpha": 2.0}, "trained with lora.alpha = 8.0, the run asks for 2.0"),
    ],
)
def test_a_state_of_another_shape_is_refused_by_the_field(
    run: TestRun, tmp_path: Path, spec: dict[str, float], complaint: str
) -> None:
    run.do("save_state", output=tmp_path / "state.safetensors")
    with pytest.raises(EngineError, match=complaint):
        TestRun.create(run.engine, "other", initial=tmp_path / "state.safetensors", **spec)


def test_a_state_of_another_base_is_refused(run: TestRun, tmp_path: Path) -> None:
    run.do("save_state", output=tmp_path / "state.safetensors")
    copy = tmp_path / "model"
    copy.mkdir()
    for file in models.resolve("tiny").path.iterdir():
        (copy / file.name).write_bytes(file.read_bytes())
    weights = bytearray((copy / "model.safetensors").read_bytes())
    weights[-1] ^= 1
    (copy / "model.safetensors").write_bytes(weights)
    other = engine(tmp_path, model=str(copy))
    with pytest.raises(EngineError, match="trained on model 'tiny', whose weights are not those of"):
        TestRun.create(other, initial=tmp_path / "state.safetensors")


def test_a_file_that_is_no_state_is_refused(tiny: Engine, tmp_path: Path) -> None:
    (tmp_path / "torn.safetensors").write_bytes(b"half a file")
    with pytest.raises(EngineError, match=r"torn.safetensors cannot be read as a state"):
        TestRun.create(tiny, initial=tmp_path / "torn.safetensors")
    with pytest.raises(EngineError, match="is not a state of this engine"):
        TestRun.create(tiny, initial=models.resolve("tiny").weight_files[0])


def test_the_same_seed_gives_the_same_adapter_to_the_byte(tmp_path: Path) -> None:
    for name in ("one", "two"):
        run = TestRun.create(engine(tmp_path), seed=42)
        for seed in range(3):
            sampler = run.snapshot()
            run.do("sample", sampling(PROMPT, 4, seed=seed), sampler_id=sampler)
            run.train(rl_data(seed), "ppo")
            run.step(0.02)
        run.do("export_lora", output=tmp_path / f"{name}.tar.gz")
    assert (tmp_path / "one.tar.gz").read_bytes() == (tmp_path / "two.tar.gz").read_bytes()


def test_another_seed_starts_elsewhere_and_a_new_adapter_changes_nothing(tiny: Engine) -> None:
    one, other = TestRun.create(tiny, "one", seed=1), TestRun.create(tiny, "other", seed=2)
    assert not torch.equal(one.parameters.flat, other.parameters.flat)
    assert one.logprobs(PROMPT) == other.logprobs(PROMPT)
    bound = one.parameters.a(0, "down_proj").abs().max()
    assert 0.9 / 128**0.5 < bound <= 1 / 128**0.5


def test_a_run_starts_from_an_exported_adapter(run: TestRun, tmp_path: Path) -> None:
    trained(run).do("export_lora", output=tmp_path / "adapter.tar.gz")
    again = TestRun.create(run.engine, "again", initial=tmp_path / "adapter.tar.gz")
    assert torch.equal(again.parameters.flat, run.parameters.flat)
    with pytest.raises(EngineError, match="the adapter has r = 4, the run asks for 16"):
        TestRun.create(run.engine, "other", rank=16, initial=tmp_path / "adapter.tar.gz")


def test_an_archive_that_is_no_adapter_is_refused(tiny: Engine, tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "other.tar.gz", "w:gz") as archive:
        archive.add(models.resolve("tiny").tokenizer_path, "tokenizer.json")
    with pytest.raises(EngineError, match="cannot be read as a PEFT archive"):
        TestRun.create(tiny, initial=tmp_path / "other.tar.gz")


# peft 0.21 still asks transformers 5 by the attribute's old name
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
def test_peft_reads_the_adapter_and_gives_the_engines_logprobs(run: TestRun, tmp_path: Path) -> None:
    trained(run).do("export_lora", output=tmp_path / "adapter.tar.gz")
    with tarfile.open(tmp_path / "adapter.tar.gz") as archive:
        archive.extractall(tmp_path / "adapter", filter="data")
    config = json.loads((tmp_path / "adapter" / "adapter_config.json").read_text())
    assert (config["r"], config["lora_alpha"], config["base_model_name_or_path"]) == (4, 8.0, "tiny")
    base = AutoModelForCausalLM.from_pretrained(models.resolve("tiny").path)
    peer = PeftModel.from_pretrained(base, tmp_path / "adapter").eval()
    tokens = some_tokens(2, 50)
    with torch.no_grad():
        theirs = torch.log_softmax(peer(torch.tensor([tokens])).logits[0], -1)[:-1]
    forced = theirs.gather(1, torch.tensor(tokens[1:])[:, None])[:, 0]
    assert run.logprobs(tokens) == pytest.approx(forced.tolist(), abs=1e-4)


@pytest.mark.parametrize(
    ("spec", "code"),
    [({"rank": 1000}, "invalid_lora"), ({"model": "big"}, "unknown_model")],
)
def test_a_run_that_cannot_be_had_is_refused_with_a_code(tiny: Engine, spec: dict[str, object], code: str) -> None:
    with pytest.raises(EngineError) as caught:
        TestRun.create(tiny, **spec)
    assert caught.value.code == code


def test_a_released_run_is_gone(run: TestRun) -> None:
    run.engine.release_run("run")
    run.engine.release_run("run")
    assert run.error("forward", training(rl_data()))[0] == "unknown_run"


def test_a_torn_archive_is_refused(run: TestRun, tmp_path: Path) -> None:
    run.do("export_lora", output=tmp_path / "adapter.tar.gz")
    whole = (tmp_path / "adapter.tar.gz").read_bytes()
    damaged = bytes([*whole[: len(whole) // 2], *(255 - byte for byte in whole[len(whole) // 2 :])])
    for name, content in (("short", whole[: len(whole) // 2]), ("damaged", damaged)):
        (tmp_path / f"{name}.tar.gz").write_bytes(content)
        with pytest.raises(EngineError, match=f"{name}.tar.gz cannot be read as a PEFT archive"):
            TestRun.create(run.engine, name, initial=tmp_path / f"{name}.tar.gz")


@pytest.mark.parametrize("record", ["[]", "{", '{"format": "whitney-lora-state/1"}'])
def test_a_state_whose_metadata_is_broken_is_refused(tiny: Engine, tmp_path: Path, record: str) -> None:
    save_file({"parameters": torch.zeros(1)}, tmp_path / "odd.safetensors", {METADATA_KEY: record})
    with pytest.raises(EngineError, match=r"odd.safetensors cannot be read as a state"):
        TestRun.create(tiny, initial=tmp_path / "odd.safetensors")


@contextmanager
def no_file_may_grow() -> Iterator[None]:
    """What a full disk is to a process."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("kind", "name"), [("save_state", "states/st_1.safetensors"), ("export_lora", "artifacts/art_1.tar.gz")]
)
def test_a_file_that_a_full_disk_refuses_is_named_and_can_be_written_later(
    run: TestRun, tmp_path: Path, kind: str, name: str
) -> None:
    target = tmp_path / name
    target.parent.mkdir()
    with no_file_may_grow():
        code, message = run.error(kind, output=target)
    assert (code, list(target.parent.iterdir())) == ("file_not_written", [])
    assert message.startswith(f"{name} could not be written (File too large")
    run.do(kind, output=target)
    assert [file.name for file in target.parent.iterdir()] == [target.name]


def test_a_snapshot_that_cannot_make_room_in_memory_fails_its_operation_and_loses_no_other(tmp_path: Path) -> None:
    run = TestRun.create(engine(tmp_path, snapshots_in_memory=1))
    first = run.snapshot()
    expected = run.logprobs(PROMPT, first)
    with no_file_may_grow():
        code, message = run.error("save_weights_for_sampler", sampler_id="second")
    assert code == "file_not_written"
    assert "make room where the gateway keeps its data" in message
    run.snapshot()
    assert run.logprobs(PROMPT, first) == expected
