"""The export: what cannot be unpacked or is not what was trained is refused, and what is delivered works elsewhere."""

from __future__ import annotations

import io
import json
import re
import resource
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flow_probes import Taught, all_sessions, first_attempt, ledger, retry
from tiny_configs import TINY, sft_config

import flows
import models
from cli.app import run_command
from flows.durable.unpacking import unpack_adapter
from gateway.launch import GatewayProcess
from models.adapter import WEIGHTS_FILE
from tasks.adapter import AdapterError, Expected
from tasks.events import Event, listening
from tasks.rendering import Renderer
from whitney.client import WhitneyClient
from whitney.settings import WhitneySettings
from whitney.types import CreateRun

OF_TINY = Expected(model="tiny", rank=8, alpha=16, base=None)

# peft 0.21 still asks transformers 5 by the attribute's old name
PEFT = pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")


def test_a_full_disk_is_not_taken_for_a_bad_archive(tmp_path: Path) -> None:
    archive = tmp_path / "adapter.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo("adapter_model.safetensors")
        member.size = 10
        tar.addfile(member, io.BytesIO(b"0123456789"))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(OSError, match=rf"File too large: '{tmp_path}/.adapter"):
            unpack_adapter(archive, tmp_path / "adapter", OF_TINY)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert list(tmp_path.iterdir()) == [archive], "what was half unpacked must not be taken for an adapter"


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_what_is_no_archive_is_told_by_its_name(content: bytes, tmp_path: Path) -> None:
    archive = tmp_path / "adapter.tar.gz"
    archive.write_bytes(content)
    with pytest.raises(AdapterError, match=f"{archive}: not a readable adapter archive"):
        unpack_adapter(archive, tmp_path / "adapter", OF_TINY)


@pytest.mark.parametrize(
    ("name", "fields", "said"),
    [
        ("../adapter_config.json", {}, "outside the destination"),
        ("adapter_config.json", {"type": tarfile.SYMTYPE, "linkname": "/etc/passwd"}, "is a link or a device"),
        ("adapter_model.safetensors", {"size": 10**12}, "would unpack to more than"),
    ],
    ids=["elsewhere", "link", "huge"],
)
def test_an_archive_that_would_write_elsewhere_or_fill_the_disk_is_refused(
    name: str, fields: dict[str, Any], said: str, tmp_path: Path
) -> None:
    archive = tmp_path / "adapter.tar.gz"
    with tarfile.open(archive, "w:gz") as tar:
        member = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(member, field, value)
        tar.addfile(member)
    with pytest.raises(AdapterError, match=said):
        unpack_adapter(archive, tmp_path / "run" / "adapter", OF_TINY)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == [archive]


def short(folder: Path, **fields: Any) -> Any:
    return sft_config(folder, cycles=1, save_every=1, evaluation={"enabled": False}, **fields)


def damaging(patch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From now on downloads lose their last tensor's pair; the returned function ends that."""
    real = WhitneyClient.download_artifact

    async def download(self: WhitneyClient, artifact_id: str, to: Path) -> None:
        await real(self, artifact_id, to)
        unpacked = to.with_name("damaged")
        with tarfile.open(to) as archive:
            archive.extractall(unpacked, filter="data")
        weights = unpacked / WEIGHTS_FILE
        weights.write_bytes(weights.read_bytes().replace(b"1.self_attn.v_proj.lora_B", b"1.self_attn.v_proj.lora_C"))
        with tarfile.open(to, "w:gz") as archive:
            for file in unpacked.iterdir():
                archive.add(file, file.name)

    patch.setattr(WhitneyClient, "download_artifact", download)
    return lambda: patch.setattr(WhitneyClient, "download_artifact", real)


@pytest.mark.usefixtures("prefect_server")
async def test_an_adapter_that_is_not_what_was_trained_fails_the_run_and_a_retry_exports_again(
    local: GatewayProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mend = damaging(monkeypatch)
    config = short(tmp_path / "runs")
    flow_run_id, state = await first_attempt(flows.sft, config)
    assert state.is_failed()
    folder = tmp_path / "runs" / "tiny-sft"
    state_id = json.loads((folder / "states.jsonl").read_text())["state_id"]
    told = str(await state.aresult(raise_on_failure=False))
    assert re.search(r"has no lora_B of model\.layers\.1\.self_attn\.v_proj.*Nothing is lost: state " + state_id, told)
    assert not (folder / "adapter").exists()
    assert {status for _, status in await all_sessions()} == {"closed"}

    mend()
    state = await retry(flows.sft, flow_run_id)
    assert state.is_completed(), state.message
    assert (folder / "adapter" / "README.md").is_file()
    assert ledger(local, flow_run_id, attempt=2)["policy"] == {"export_lora": 1}, "nothing was trained again"


@pytest.mark.usefixtures("prefect_server", "local")
async def test_a_retry_brings_back_an_adapter_that_has_gone_and_says_so_where_the_endpoint_has_it_no_more(
    tmp_path: Path,
) -> None:
    flow_run_id, state = await first_attempt(flows.sft, short(tmp_path / "runs"))
    summary = await state.aresult()
    adapter = Path(summary["adapter"])
    before = {file.name: file.read_bytes() for file in adapter.iterdir()}
    sessions = await all_sessions()
    shutil.rmtree(adapter)
    assert (await retry(flows.sft, flow_run_id)).is_completed()
    after = {file.name: file.read_bytes() for file in adapter.iterdir()}
    assert after == before, "the same adapter, and the same card"

    async with WhitneyClient(WhitneySettings()) as client:
        await client.delete_artifact(summary["artifact_id"])
    shutil.rmtree(adapter)
    told: list[Event] = []
    with listening(told.append):
        assert (await retry(flows.sft, flow_run_id)).is_completed()
    assert [one for one in told if "is gone, and so is what it was unpacked from" in str(one.facts)]
    assert not adapter.exists()
    assert await all_sessions() == sessions, "neither Retry has opened one"


async def sampled(artifact_id: str, messages: list[dict[str, str]]) -> str:
    """The gateway's own greedy answer of an exported adapter."""
    renderer = Renderer(models.resolve("tiny"))
    async with WhitneyClient(WhitneySettings()) as client:
        session = await client.create_session(create_key=f"greedy-{artifact_id}")
        request = CreateRun.model_validate(
            {
                "create_key": f"greedy-{artifact_id}",
                "provider": "local",
                "model": "tiny",
                "lora": TINY["lora"],
                "initial": {"artifact_id": artifact_id},
            }
        )
        run_id = (await client.create_run(session.session_id, request)).run_id
        sampler = (await client.run_operation(run_id, "save_weights_for_sampler", {}))["sampler_id"]
        params = {"max_tokens": 6, "temperature": 0.0, "stop_token_ids": renderer.stop_token_ids}
        prompt = {"token_ids": renderer.prompt_tokens(messages)}
        payload = {"prompt": prompt, "num_samples": 1, "sampling_params": params}
        answer = await client.sampler_operation(run_id, sampler, "sample", payload)
        await client.finish(run_id)
        await client.wait_terminal(run_id)
        await client.close_session(session.session_id)
    return renderer.decode(answer["sequences"][0]["tokens"])


def snippet_of(card: Path) -> str:
    (snippet,) = re.findall(r"^```python\n(.*?)^```", card.read_text(), re.DOTALL | re.MULTILINE)
    return str(snippet)


@PEFT
@pytest.mark.usefixtures("prefect_server")
async def test_the_cards_own_programs_say_what_the_gateway_says_with_peft_and_merged(
    taught: Taught, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    summary = await taught("local")
    run = Path(summary["run_folder"])
    question = json.loads((run / "heldout.jsonl").read_text().splitlines()[0])["messages"]
    expected = await sampled(summary["artifact_id"], question)
    assert expected.strip(), "an empty answer would not tell one model from another"

    for key, value in (("HF_HUB_OFFLINE", "1"), ("TRANSFORMERS_VERBOSITY", "error")):
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(tmp_path)
    assert run_command(["export", str(run), "--to", "adapter"]) == 0
    assert run_command(["export", str(run), "--to", "merged", "--merge"]) == 0
    assert run_command(["model", "tiny", "--copy-to", "base"]) == 0
    assert capsys.readouterr().out.splitlines() == [str(tmp_path / name) for name in ("adapter", "merged", "base")]
    for folder in ("adapter", "merged"):
        exec(snippet_of(tmp_path / folder / "README.md"), {})
        assert capsys.readouterr().out == f"{expected}\n", folder


@pytest.mark.usefixtures("prefect_server", "local")
async def test_a_chat_template_of_the_runs_own_goes_with_the_adapter_and_the_merged_model(tmp_path: Path) -> None:
    summary = await flows.sft(short(tmp_path / "runs", model={"name": "tiny", "chat_template": "chatml"}))
    adapter = Path(summary["adapter"])
    template = (adapter / "chat_template.jinja").read_text()
    assert "<|im_start|>assistant" in template
    assert 'chat_template=Path("adapter/chat_template.jinja").read_text()' in snippet_of(adapter / "README.md")
    assert run_command(["export", summary["run_folder"], "--to", str(tmp_path / "merged"), "--merge"]) == 0
    assert models.resolve(str(tmp_path / "merged")).chat_template == template
    assert "chat_template=" not in snippet_of(tmp_path / "merged" / "README.md")
    secret = WhitneySettings().api_key.get_secret_value()
    for card in (adapter / "README.md", tmp_path / "merged" / "README.md"):
        assert secret not in card.read_text()
        assert str(tmp_path) not in card.read_text()
        assert str(Path.home()) not in card.read_text()
