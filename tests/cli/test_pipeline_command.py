"""A pipeline at the command line: `run`, `--resume`, `--from` and `lineage`, on the tiny model, in this process."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from cli.app import run_command
from gateway.launch import GatewayProcess
from tasks.events import Event, listening
from whitney.errors import ConnectionFailedError

PIPELINE = """
algorithm = "pipeline"
name = "chain"
[shared.model]
name = "tiny"
[shared.evaluation]
samples = 1
max_prompts = 1
[shared.sampling]
max_tokens = 4
[[stages]]
config = "taught.toml"
name = "sft"
[[stages]]
name = "rl"
algorithm = "grpo"
require = "eval.accuracy >= 0"
config = { cycles = 2, groups_per_cycle = 1, group_size = 2 }
[[stages]]
name = "student"
algorithm = "opd"
start_from = "base"
teacher_from = "rl"
require = "eval.accuracy >= 2 * rl.eval.accuracy"
on_fail = "continue"
config = { cycles = 1, groups_per_cycle = 1, group_size = 1 }
"""
TAUGHT = """
algorithm = "sft"
name = "by-itself"
cycles = 1
batch_size = 2
"""

pytestmark = pytest.mark.usefixtures("there", "loggers_as_they_were")


class Said(NamedTuple):
    """What a command answered."""

    status: int
    out: str
    err: str


def whitney(*arguments: str) -> Said:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        status = run_command(arguments)
    return Said(status, out.getvalue(), err.getvalue())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pipeline")
    (folder / "chain.toml").write_text(PIPELINE)
    (folder / "taught.toml").write_text(TAUGHT)
    return folder


@pytest.fixture(scope="module")
def there(folder: Path, tiny_gateway: GatewayProcess, prefect_server: str) -> Iterator[None]:
    """In the pipelines' directory, with the tiny gateway in the environment."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("WHITNEY_BASE_URL", tiny_gateway.base_url)
        patch.setenv("WHITNEY_API_KEY", tiny_gateway.api_key)
        yield


@pytest.fixture(scope="module")
def failed(there: None) -> Said:
    """A run that failed in the second cycle of its second stage."""

    def lose_the_connection(event: Event) -> None:
        if event.kind == "cycle" and event.facts["cycle"] == 1:
            raise ConnectionFailedError("no answer")

    with listening(lose_the_connection):
        return whitney("run", "chain.toml")


def stages_of(run: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path("runs", run, "stages.jsonl").read_text().splitlines()]


def test_a_failed_pipeline_is_one_sentence_with_the_command_that_goes_on_with_all_of_it(failed: Said) -> None:
    assert failed.status == 1
    assert "Pipeline chain: sft → rl → student; run folder runs/chain\n\nStage 1/3: sft\n" in failed.out
    assert "sft on tiny: 1 cycle, 59 training and 1 held-out examples; run folder runs/chain/1-sft" in failed.out
    assert (
        "Stage 1/3 done: sft, accuracy 0.0% [0, 79] → 0.0% [0, 79]; in brackets 95% intervals\n\nStage 2/3: rl (grpo)\n"
        in failed.out
    )
    assert "whitney: the run failed: no answer\nwhat it left: runs/chain\n" in failed.err
    assert "`whitney run --resume runs/chain`" in failed.err
    assert [stage["stage"] for stage in stages_of("chain")] == ["sft"]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            ["--set", "stages.rl.config.cycles=3", "--allow-drift"],
            "trained or begun (sft, rl), nor under another name:\n  stages.rl.config.cycles: 2 → 3\n",
        ),
        (["--set", "shared.optimizer.beta1=0.8", "--allow-drift"], "  stages.sft.config.optimizer.beta1: 0.9 → 0.8\n"),
        (["--set", "stages.student.teacher_from=sft"], "  stages.student.config.teacher.state_id: 'the state of stage"),
        (
            ["--set", "stages.2.config.cycles=9"],
            "  stages.student.config.cycles: 1 → 9\nThat changes no stage that has",
        ),
        (
            ["--set", "stages.rl.require=none"],
            "  stages.rl.require: 'eval.accuracy >= 0' → None\nThat changes no stage",
        ),
        (["--set", "stages.student.name=pupil"], "  stages.student: 'a stage of opd' → None\n"),
        (["--set", "stages.sft.name=taught", "--allow-drift"], "  stages.sft: 'a stage of sft' → None\n"),
        (["--name", "other"], "  name: 'chain' → 'other'\n"),
        (["--from", "rl"], "--from starts a new run, --resume goes on with one"),
    ],
)
def test_what_has_begun_stays_as_it_was_and_what_is_to_come_is_changed_by_who_means_it(
    failed: Said, asked: list[str], told: str
) -> None:
    said = whitney("run", "--resume", "chain", *asked)
    assert (said.status, said.out) == (2, "")
    assert told in said.err
    assert ("If it is meant: --allow-drift" in said.err) == ("has begun, but" in said.err)


def test_a_stage_does_not_go_on_by_itself_but_its_pipeline_does(failed: Said) -> None:
    said = whitney("run", "--resume", "runs/chain/2-rl")
    assert said.status == 2
    assert (
        "runs/chain/2-rl is a stage of the pipeline in runs/chain, which goes on as a whole: --resume runs/chain"
        in (said.err)
    )


@pytest.fixture(scope="module")
def resumed(failed: Said) -> Said:
    """The failed run, gone on with, its last stage changed."""
    return whitney("run", "--resume", "chain", "--set", "stages.student.config.seed=5", "--allow-drift")


def test_going_on_adopts_what_is_finished_and_tells_it_by_stages(resumed: Said) -> None:
    assert resumed.status == 0, resumed.err
    assert "Stage 1/3 was finished before: sft, accuracy" in resumed.out
    assert "going on after cycle 1\ncycle 2/2 " in resumed.out
    assert "Gate of rl passed: eval.accuracy = " in resumed.out
    assert "Stage 3/3: student (opd)\n" in resumed.out
    assert json.loads(Path("runs/chain/3-student/config.json").read_text())["config"]["seed"] == 5
    redone = [stage["redone"]["operations"] for stage in stages_of("chain")]
    assert redone[1] > 0, "the cycle that failed is billed twice"
    assert (redone[0], redone[2]) == (0, 0)


def test_the_end_is_a_table_of_the_stages_with_what_they_cost_and_where_their_adapters_are(resumed: Said) -> None:
    end = resumed.out[resumed.out.index("\nSTAGE ") :].splitlines()
    for stage, line in zip(stages_of("chain"), end[2:5], strict=True):
        cells = line.split()
        assert cells[:3] == [stage["stage"], stage["algorithm"], "accuracy"]
        assert cells[-4] == f"{sum(stage['operations'].values()):,}"
        assert cells[-1] == stage["adapter"] == f"{stage['run_folder']}/adapter"
    assert "Billed:" in resumed.out
    assert "open sessions: 0\n" in resumed.out
    assert "Run:       runs/chain\nAdapter:   runs/chain/3-student/adapter\n" in resumed.out


def test_a_finished_pipeline_shows_its_table_and_starts_nothing(resumed: Said) -> None:
    again = whitney("run", "--resume", "chain")
    assert again.status == 0
    assert "runs/chain is finished: nothing to go on with, nothing was allocated\n\nSTAGE " in again.out
    assert whitney("run", "--resume", "chain", "--set", "stages.rl.config.seed=9").err.startswith(
        "whitney: runs/chain is finished: a changed stages.rl.config.seed has no effect."
    )


def test_the_lineage_is_each_stages_chain_and_what_it_was_handed(resumed: Said) -> None:
    sft, rl, _ = stages_of("chain")
    said = whitney("lineage", "chain")
    assert said.status == 0, said.out
    assert said.out.index("Stage 1: sft\n") < said.out.index("Stage 2: rl\n") < said.out.index("Stage 3: student\n")
    assert f"Stage 2: rl\nbegins with the weights of state {sft['state_id']}, of stage sft\n" in said.out
    assert f"Stage 3: student\nis taught by state {rl['state_id']}, of stage rl\n" in said.out
    assert said.out.count("unbroken: each of") == 3
    assert said.out.count("redone:   0 operations") == 2  # of the second stage the first attempt's last cycle
    machine = json.loads(whitney("lineage", "chain", "--json").out)
    assert [len(stage["blocks"]) for stage in machine["stages"]] == [1, 2, 1]


def test_a_stage_that_began_with_another_state_is_told(resumed: Said, tmp_path: Path) -> None:
    shutil.copytree("runs/chain", tmp_path / "chain")
    record = tmp_path / "chain" / "2-rl" / "config.json"
    record.write_text(record.read_text().replace(stages_of("chain")[0]["state_id"], "st_another"))
    said = whitney("lineage", str(tmp_path / "chain"))
    assert said.status == 1
    assert "BROKEN: begins with the weights of state st_another, and stage sft has left st_" in said.out


@pytest.fixture(scope="module")
def from_student(resumed: Said) -> Said:
    """A run that starts at the last stage, after what the one before has come to, by that one's configuration."""
    return whitney("run", "--from", "student", "--of", "chain", "--set", "stages.student.require=none")


def test_a_run_from_a_stage_on_trains_that_and_takes_the_others_over(from_student: Said, resumed: Said) -> None:
    assert from_student.status == 0, from_student.err
    assert "Stage 1/3 was finished before: sft" in from_student.out
    assert "Stage 2/3 was finished before: rl" in from_student.out
    (folder,) = (path for path in Path("runs").iterdir() if path.name.startswith("chain-"))
    before, now = stages_of("chain"), stages_of(folder.name)
    assert now[:2] == [{**stage, "gate": now[number]["gate"]} for number, stage in enumerate(before[:2])]
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["operations"] == now[2]["operations"]  # the others are another run's bill
    assert [path.name for path in folder.glob("[0-9]-*")] == ["3-student"]
    lineage = whitney("lineage", str(folder))
    assert lineage.status == 0
    assert "runs/chain/1-sft: sft, flow run" in lineage.out


OWN_GATEWAY = {"gateway_data_dir": ".whitney/gateways/20300101-000000-1"}


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (["rll"], "--from rll: no stage of that name; did you mean 'rl'? known: sft, rl, student"),
        (["sft"], "--from sft: it is the first stage"),
        (
            ["rl", "--set", "stages.sft.config.batch_size=3"],
            "  stages.sft.config.batch_size: 2 → 3\nTo go by the configuration that it had: `whitney run --from",
        ),
        (
            ["rl", "--set", 'name="nobody"'],
            "in runs has outcomes of sft. If it ran under another name, say which (",
        ),
        (["rl", "--set", "name=none"], "the pipeline has no name to find its runs by; say which: --of RUN"),
        (["rl", "--embedded"], "--from rl: --embedded starts a new gateway"),
        (
            ["rl", "--of", "nowhere"],
            "--of nowhere: there is no run folder nowhere, nor runs/nowhere (one with a config.json)",
        ),
        (["student", "--of", "short"], "--from student: runs/short has no outcome of stage rl: it ended before"),
        (["rl", "--of", "gone"], "were in a gateway of its own, which went with the run; states outlive a run at"),
        (
            ["rl", "--of", "elsewhere"],
            "stage 'rl' needs state st_gone of stage 'sft', which this endpoint does not have",
        ),
    ],
)
def test_a_run_that_cannot_be_started_at_a_stage_says_why(resumed: Said, asked: list[str], told: str) -> None:
    short, gone, elsewhere = (Path("runs", name) for name in ("short", "gone", "elsewhere"))
    if not short.exists():
        for folder in (short, gone, elsewhere):
            shutil.copytree("runs/chain", folder)
        (short / "stages.jsonl").write_text(json.dumps(stages_of("chain")[0]) + "\n")
        endpoints = json.loads((gone / "endpoints.json").read_text())
        (gone / "endpoints.json").write_text(json.dumps(endpoints | OWN_GATEWAY))
        sft = stages_of("chain")[0]
        (elsewhere / "stages.jsonl").write_text(json.dumps({**sft, "state_id": "st_gone"}) + "\n")
    said = whitney("run", "chain.toml", "--from", *asked)
    assert said.status == 2
    assert told in said.err
    assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (
            "stages.rl.config.cycels=3",
            "chain.toml: stages.rl.config: unknown field 'cycels': did you mean 'cycles'?",
        ),
        ("stages.rl.on_fail=halt", "chain.toml: stages.rl.on_fail = 'halt': input should be 'stop', 'pause' or"),
        (
            "stages.rll.on_fail=stop",
            "nothing there is called 'rll'; did you mean 'rl'? known: sft, rl, student, 0 to 2",
        ),
        ("stages.3.on_fail=stop", "nothing there is called '3'; known: sft, rl, student, 0 to 2"),
        ("stages=3", "chain.toml: stages = 3: input should be a valid list"),
        ("stages.rl.config=no.toml", "--set: stages.rl.config = 'no.toml': no.toml: no such file"),
        (
            "stages.rl.config=taught.toml",
            "stages.rl.config = 'taught.toml': the file is of algorithm sft, the stage of grpo",
        ),
        ("stages.student.config.data.source=no.jsonl", "stage 'student': data source 'no.jsonl' is unknown"),
        ("shared.model.name=tinny", "tinny"),
    ],
)
def test_a_mistake_names_the_stage_and_the_field_before_anything_is_started(asked: str, told: str) -> None:
    said = whitney("run", "chain.toml", "--name", "never", "--set", asked)
    assert (said.status, said.out) == (2, "")
    assert told in said.err
    assert not Path("runs/never").exists()


def test_only_pipelines_have_stages_to_start_from() -> None:
    assert (
        "only for a pipeline; this configuration is of one algorithm"
        in whitney("run", "taught.toml", "--from", "x").err
    )
    assert "--of: only with --from STAGE" in whitney("run", "chain.toml", "--of", "chain").err
