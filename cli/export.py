"""`whitney export`: a finished run's adapter, or its base with the adapter merged in, as a folder to hand on."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cli.failures import UsageError
from cli.run_files import TABLE, no_run_folder, read_json, run_folder

if TYPE_CHECKING:
    from models import ModelFolder

WAY_OUT = "restore it from a copy"


def export(
    run: str,
    *,
    to: Path | None = None,
    merge: Annotated[bool, Parameter(negative="")] = False,
    base: Path | None = None,
) -> int:
    """Copy the adapter of a finished run, with its model card, into a folder of its own, and print that folder.

    The adapter is checked again first. With --merge the folder is an ordinary Hugging Face model, base and adapter in
    one, for tools that take no adapters: W + alpha/r · B·A, in the base's own type. README.md in it has the commands
    for transformers, vLLM and llama.cpp.

    Parameters
    ----------
    run
        Folder of the run, or its name under runs/.
    to
        The folder to write, which is not there yet; default: RUN-adapter, or RUN-merged.
    merge
        Merge the adapter into the base model.
    base
        Folder of the base model, where its name is neither a built-in model's nor a folder.
    """
    finished = FinishedRun.find(run)
    target = to or Path(f"{finished.folder.name}-{'merged' if merge else 'adapter'}")
    if target.exists():
        raise UsageError(f"--to {target} is there already: name a folder that is not")
    if merge:
        model = finished.base(base)
        finished.check(model)
        _whole_or_not_at_all(target, lambda folder: finished.merge(model, folder, name=target.name))
    else:
        finished.check(None)
        _whole_or_not_at_all(target, lambda folder: shutil.copytree(finished.adapter, folder))
    print(target.resolve())
    return 0


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """A run folder with an adapter in it; `record` is its config.json."""

    folder: Path
    record: dict[str, Any]
    summary: dict[str, Any]

    @classmethod
    def find(cls, run: str) -> FinishedRun:
        """The run that is named.

        Raises:
            UsageError: there is none, it has not come to its end, or its adapter is gone.
        """
        folder = run_folder(run)
        if folder is None:
            raise UsageError(no_run_folder(run))
        record = read_json(folder / "config.json", TABLE, WAY_OUT) or {}
        summary = read_json(folder / "summary.json", TABLE, WAY_OUT)
        if summary is None or not isinstance(record.get("config"), dict):
            raise UsageError(
                f"{folder} has no summary.json: the run has not come to its end. `whitney run --resume` may"
            )
        if stages := summary.get("stages"):
            last = Path(stages[-1]["run_folder"]).name
            raise UsageError(f"{folder} is a pipeline: name a stage's folder, {folder / last} for the last one's")
        found = cls(folder, record, summary)
        if not found.adapter.is_dir():
            raise UsageError(f"{found.adapter} is gone: unpack {folder / 'adapter.tar.gz'} there, or restore a copy")
        return found

    @property
    def adapter(self) -> Path:
        """The PEFT folder; beside the run's other files, wherever those have been moved to."""
        return self.folder / "adapter"

    @property
    def model(self) -> str:
        """The name of the base model, as the run has it."""
        return str(self.record["config"]["model"]["name"])

    def base(self, folder: Path | None) -> ModelFolder:
        """The base model, fetched or built if need be.

        Raises:
            UsageError, ModelError: it cannot be had.
        """
        import models

        if folder is None:
            try:
                return models.resolve(self.model)
            except models.ModelError as error:
                raise UsageError(f"{error} --base names the folder of the base model to merge into") from error
        found = models.ModelFolder(self.model, folder.expanduser().resolve())
        missing = [file.name for file in (found.path / "config.json", *found.weight_files) if not file.is_file()]
        if missing:
            raise UsageError(f"--base {folder} is no model folder: {missing[0]} is missing")
        return found

    def check(self, base: ModelFolder | None) -> None:
        """Look at the adapter again: it may have been touched since.

        Raises:
            UsageError: it is not the run's, or is damaged.
        """
        import models
        from models.adapter import AdapterFolder
        from tasks.adapter import AdapterError, Expected, check_adapter

        lora = self.record["config"]["lora"]
        expected = Expected(self.model, lora["rank"], lora["alpha"], base or models.present(self.model))
        try:
            check_adapter(AdapterFolder(self.adapter), expected)
        except AdapterError as error:
            raise UsageError(f"{self.adapter}: {error}") from error

    def merge(self, base: ModelFolder, folder: Path, *, name: str) -> None:
        """Write base and adapter in one, with a card, the chat template and the tokens that end a reply."""
        from models.adapter import AdapterFolder
        from models.merge import merge, set_stop_tokens
        from tasks.model_card import model_card
        from tasks.rendering import Renderer
        from tasks.serving import TEMPLATE_FILE, Serving, shared_question

        own_template = self.adapter / TEMPLATE_FILE
        renderer = Renderer(base, own_template if own_template.is_file() else None)
        merge(base, AdapterFolder(self.adapter), folder)
        if own_template.is_file():
            shutil.copyfile(own_template, folder / TEMPLATE_FILE)
        set_stop_tokens(folder, renderer.stop_token_ids)
        config = self.record["config"]
        serving = Serving(
            name=name,
            model=self.model,
            rank=config["lora"]["rank"],
            max_tokens=config["sampling"]["max_tokens"],
            stop_token_ids=renderer.stop_token_ids,
            question=shared_question(config["data"]["source"], self.folder / "heldout.jsonl"),
            merged=True,
        )
        (folder / "README.md").write_text(model_card(self.record, self.summary, serving), encoding="utf-8")


def _whole_or_not_at_all(target: Path, write: Callable[[Path], object]) -> None:
    """Let `write` fill a neighbouring folder, then rename it.

    Raises:
        UsageError: it cannot be written.
    """
    from models import ModelError

    beside = target.with_name(f".{target.name}.new")
    with ExitStack() as cleanup:
        cleanup.callback(shutil.rmtree, beside, ignore_errors=True)
        shutil.rmtree(beside, ignore_errors=True)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            write(beside)
            beside.rename(target)
        except ModelError as error:
            raise UsageError(str(error)) from error
        except (OSError, shutil.Error) as error:
            raise UsageError(f"--to {target} cannot be written: {error}") from error
