"""From a model's name to its folder, fetching or building it at first use."""

from __future__ import annotations

import difflib
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from models import smollm2, tiny
from models.errors import ModelError
from models.folder import ModelFolder

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
Builder = Callable[[Path, Progress], None]

# A folder's name carries the form it was written in: a builder that changes what it writes changes this name too.
BUILT_IN: dict[str, tuple[str, Builder]] = {
    smollm2.NAME: (f"{smollm2.NAME}-{smollm2.GGUF_SHA256[:8]}", smollm2.build),
    tiny.NAME: (f"{tiny.NAME}-{tiny.FORM}", tiny.build),
}


def resolve(name: str, *, cache_dir: Path | None = None, progress: Progress = logger.info) -> ModelFolder:
    """The folder of a built-in model or of a local Hugging Face folder of Llama architecture.

    A built-in model is made once, in `cache_dir`; two processes that ask at once wait for one another. `progress` is
    told in a sentence what takes time.

    Raises:
        ModelError: the name is unknown, the folder is not usable, or the model cannot be fetched.
    """
    if name in BUILT_IN:
        folder_name, build = BUILT_IN[name]
        folder = ModelFolder(name, (cache_dir or cache_folder()) / folder_name)
        if not folder.path.is_dir():
            _make_once(folder.path, build, progress)
    else:
        path = Path(name).expanduser()
        if not path.is_dir():
            raise ModelError(_unknown(name))
        folder = ModelFolder(name, path.resolve())
    folder.check()
    return folder


def present(name: str, *, cache_dir: Path | None = None) -> ModelFolder | None:
    """The folder of a model that is on this machine; None where `resolve` would have to fetch it, or would refuse."""
    built_in = name in BUILT_IN
    path = (cache_dir or cache_folder()) / BUILT_IN[name][0] if built_in else Path(name).expanduser().resolve()
    folder = ModelFolder(name, path)
    try:
        folder.check()
    except ModelError:
        return None
    return folder


def cache_folder() -> Path:
    """Where built-in models are kept: $WHITNEY_CACHE, or `whitney/models` in the user's cache folder."""
    if own := os.environ.get("WHITNEY_CACHE"):
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "whitney" / "models"


def _make_once(target: Path, build: Builder, progress: Progress) -> None:
    """Build into a neighbouring folder and rename: a folder with its final name is always whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_name(f".{target.name}.lock")):
        if target.is_dir():  # another process was faster
            return
        unfinished = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
        try:
            build(unfinished, progress)
            unfinished.chmod(0o755)  # temporary folders and safetensors' files are private; a model is not
            for file in unfinished.iterdir():
                file.chmod(0o644)
            unfinished.rename(target)
        finally:
            shutil.rmtree(unfinished, ignore_errors=True)


def _unknown(name: str) -> str:
    close = difflib.get_close_matches(name, BUILT_IN, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return (
        f"unknown model {name!r}.{hint} Known: {', '.join(sorted(BUILT_IN))}, or the path of a local Hugging Face "
        "folder of Llama architecture."
    )
