"""`whitney demo`: everything at once, on this machine, and nothing of it left running."""

from __future__ import annotations

import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from cli.failures import RunFailedError, interruptible
from cli.local_extra import require_local_extra
from cli.measured import share
from cli.prefect_setup import configure

if TYPE_CHECKING:
    from rich.console import Console

    from cli.run_data import PrefectAt
    from cli.terminal import Say
    from flows.config import FlowConfig

CONFIG = Path(__file__).resolve().parent.parent / "deployments" / "configs" / "demo-grpo-addition.toml"


def demo(
    *,
    config: Path = CONFIG,
    seed: int | None = None,
    keep_open: bool | None = None,
    verbose: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Watch a small model learn to add: gateway, Prefect, GRPO, one command.

    Starts an embedded gateway and a Prefect server on this machine, trains, says what was learned, and stops both.
    Everything is kept under .whitney/ and runs/ of the current folder.

    Parameters
    ----------
    config
        What to run.
    seed
        Seed of the run; default: the configuration's.
    keep_open
        Leave the Prefect UI up at the end, until Ctrl-C; default: on a terminal only.
    verbose
        Show the log of Prefect's flow and task runs.
    """
    require_local_extra()
    from rich.console import Console

    from cli.prefect_server import STANDARD_PORT, free_port, prefect_server, project_server_environment, wait_until_up
    from cli.run_data import PROJECT_DATA, PrefectAt
    from cli.terminal import sayer

    say = sayer(console := Console())
    home, log = PROJECT_DATA / "prefect", PROJECT_DATA / "prefect-server.log"
    environment = project_server_environment(home, free_port(STANDARD_PORT))
    prefect = PrefectAt(environment["PREFECT_API_URL"], home)
    os.environ.update(environment)  # before Prefect is imported: it reads them once
    configure(verbose=verbose)
    stay = sys.stdin.isatty() if keep_open is None else keep_open
    with interruptible(), prefect_server(environment, log) as server:
        say(f"Prefect UI: {prefect.api_url.removesuffix('/api')}  (up in a few seconds)")
        try:
            _demonstrate(config, seed, console, prefect, lambda: wait_until_up(server, environment, log))
        except RunFailedError as error:
            if not stay:
                raise RunFailedError(f"{error}\nthe UI ends with the demo; --keep-open leaves it up") from error
            say(f"whitney: {error}")
            _wait_for_interrupt(say)
            return 1
        if stay:
            _wait_for_interrupt(say)
    return 0


def _demonstrate(
    config: Path, seed: int | None, console: Console, prefect: PrefectAt, wait_for_prefect: Callable[[], None]
) -> None:
    """Train with a gateway of our own, and say what came of it. The gateway starts while the Prefect server does."""
    from cli.endpoint import embedded_gateway
    from cli.run_data import Endpoints
    from cli.summary import show_summary
    from cli.terminal import sayer
    from cli.training import train
    from flows.load_config import load_algorithm

    say = sayer(console)
    algorithm, checked = load_algorithm(config, [] if seed is None else [f"seed={seed}"])
    with embedded_gateway((checked.model.name,), checked.model.provider, say=say) as whitney:
        wait_for_prefect()
        summary = train(algorithm, checked, console, Endpoints.of(prefect, whitney))
    console.rule()
    show_summary(summary, console)
    for line in what_was_learned(summary, Path(summary["run_folder"]), checked):
        say(line)


def what_was_learned(summary: dict[str, Any], folder: Path, config: FlowConfig) -> list[str]:
    """What the run's own numbers say: did it learn, what was held out, and may the gain be one of style.

    Style is read from how many replies were cut off before they came to an end: a reply that does not come to the
    answer in time counts as wrong, whether or not the model could have given it.
    """
    before, after = summary.get("evaluation_before"), summary.get("evaluation_after")
    if not before or not after or before.get("accuracy") is None or after.get("accuracy") is None:
        return []
    gain = after["accuracy"] - before["accuracy"]
    sure = ", with 95% confidence intervals" if after.get("intervals") else ""
    told = f"{share(before, 'accuracy')} before, {share(after, 'accuracy')} after"
    lines = ["", f"Accuracy on held-out questions: {told}{sure}."]
    if gain <= 0:
        lines.append("It did not rise: these questions do not show that anything was learned.")
    lines.append(_what_was_held_out(folder, addition=config.data.source.startswith("addition")))
    if before.get("finished_fraction") is not None and after.get("finished_fraction") is not None:
        cut = 1 - before["finished_fraction"], 1 - after["finished_fraction"]
        lines.append(_style(gain, *cut, max_tokens=config.sampling.max_tokens))
    if before.get("greedy_accuracy") is not None and after.get("greedy_accuracy") is not None:
        lines.append(
            f"Without dice (greedy decoding) it is {share(before, 'greedy_accuracy')} before and "
            f"{share(after, 'greedy_accuracy')} after, under the same limit of {config.sampling.max_tokens} tokens."
        )
    return lines


def _what_was_held_out(folder: Path, *, addition: bool) -> str:
    with (folder / "heldout.jsonl").open(encoding="utf-8") as file:
        keys = [json.loads(line).get("key") for line in file]
    held_out = f"Held out: {len(keys)} questions, listed in heldout.jsonl."
    if addition:
        held_out += (
            f" They ask for the sums of {len(set(keys))} pairs of numbers, which training has seen in neither order: "
            "where 3 + 5 is held out, so is 5 + 3."
        )
    return held_out


def _style(gain: float, cut_before: float, cut_after: float, *, max_tokens: int) -> str:
    """What the share of replies that were cut off says about the gain in accuracy (all 0…1)."""
    seen = (
        f"{cut_before:.0%} of the replies were cut off at {max_tokens} tokens before training, {cut_after:.0%} after."
    )
    if gain <= 0:
        return seen
    if cut_before <= cut_after:
        return f"The gain is not that replies end sooner: {seen}"
    return (
        f"Some of the gain may be answering style rather than knowledge: {seen} A reply that does not come to the "
        "answer in time counts as wrong, whether or not the model could have given it."
    )


def _wait_for_interrupt(say: Say) -> None:
    say("\nThe Prefect UI stays up until Ctrl-C.")
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        say("Stopping.")
