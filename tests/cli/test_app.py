from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli.app import run_command
from cli.failures import CommandFailedError, UsageError, interruptible, is_user_mistake
from whitney.errors import OperationFailedError

COMMANDS = ("demo", "run", "init", "algorithms", "serve", "smoke", "reap", "model", "mcp", "doctor")


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)


def test_help_loads_neither_prefect_nor_torch() -> None:
    code = "import sys; from cli.app import run_command; run_command(['--help']); "
    code += "sys.exit(bool({'prefect', 'torch'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rnu"], 'Unknown command "rnu". Did you mean "run"?'),
        (["run"], "CONFIG is missing: whitney run CONFIG"),
        (["run", "x.toml", "--name"], "--name requires an argument"),
        (["run", "x.toml", "--sett", "a=1"], "--sett"),
        (["run", "a", "b"], "whitney: b: more than `whitney run` takes\nSee: whitney run --help\n"),
        (["run", "no-such.toml"], "no-such.toml: no such file"),
        (["init", "gpro"], "unknown algorithm 'gpro': did you mean 'grpo'? known: cispo, custom, "),
        (["serve", "--port", "70000"], "--port 70000: Input should be less than or equal to 65535"),
        (["serve", "--delays", "{"], "Invalid value for --delays"),
        (["serve", "--provider", "openai"], "--provider openai: Input should be 'local'"),
        (["serve", "here"], "here"),
        (["reap", "--session", "ses_1", "--flow-run", "f"], "--session ID, or --flow-run ID"),
        (["reap", "--session", "ses_1", "--deadline-s", "0"], "--deadline-s 0"),
        (["model", "smollm"], "unknown model 'smollm'"),
    ],
)
def test_a_mistake_is_one_message_on_stderr_and_status_2(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(arguments) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert "Traceback" not in captured.err
    assert captured.out == ""
    assert not list(tmp_path.iterdir())


def test_a_folder_that_cannot_be_written_to_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/sys/kernel")  # closed to everybody, were it root
    assert run_command(["up", "--model", "tiny"]) == 2
    assert capsys.readouterr().err.startswith("whitney: .whitney: ")


def test_every_mistake_in_a_configuration_is_told_at_once(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('algorithm = "grpo"\ncycels = 3\ngroup_size = 1\n')
    assert run_command(["run", str(path), "--set", "optimizer.learning_rate=-1"]) == 2
    shown = capsys.readouterr().err
    assert "'cycels'" in shown
    assert "did you mean 'cycles'?" in shown
    assert "group_size = 1" in shown
    assert "optimizer.learning_rate = -1" in shown


def test_a_failure_that_is_nobodys_mistake_has_status_1(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import cli.doctor

    def broken() -> list[cli.doctor.Finding]:
        raise CommandFailedError("the gateway ended with code 1")

    monkeypatch.setattr(cli.doctor, "LOOKS", (broken,))
    assert run_command(["doctor"]) == 1
    assert capsys.readouterr().err == "whitney: the gateway ended with code 1\n"


def test_an_interrupt_has_status_130(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import cli.doctor

    def interrupted() -> list[cli.doctor.Finding]:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli.doctor, "LOOKS", (interrupted,))
    assert run_command(["doctor"]) == 130
    assert "Traceback" not in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    import cli.doctor

    def bug() -> list[cli.doctor.Finding]:
        raise ZeroDivisionError

    monkeypatch.setattr(cli.doctor, "LOOKS", (bug,))
    with pytest.raises(ZeroDivisionError):
        run_command(["doctor"])


def test_a_failed_operation_is_not_the_users_mistake() -> None:
    failed = OperationFailedError("operation 3 failed", run_id="run_a", seq_id=3, kind="sample", code="engine")
    assert not is_user_mistake(failed)
    assert is_user_mistake(UsageError("no"))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_both_signals_interrupt_even_where_the_shell_has_them_ignored(number: signal.Signals) -> None:
    former = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with pytest.raises(KeyboardInterrupt), interruptible():
            signal.raise_signal(number)
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, former)


def test_init_writes_a_file_that_run_can_read_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_command(["init", "grpo"]) == 0
    assert "whitney run grpo.toml" in capsys.readouterr().out
    Path("grpo.toml").write_text("mine")
    assert run_command(["init", "grpo"]) == 2
    assert Path("grpo.toml").read_text() == "mine"
    assert run_command(["init", "grpo", "--force"]) == 0
    assert Path("grpo.toml").read_text().startswith("# ")


def test_init_into_a_folder_that_is_not_there_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["init", "sft", str(tmp_path / "nowhere" / "sft.toml")]) == 2
    assert "cannot be written: No such file or directory" in capsys.readouterr().err


def test_output_that_cannot_be_written_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run_command(["algorithms"]) == 2
    said = "what is printed, or a file, cannot be written: No space left on device; make room for it"
    assert capsys.readouterr().err == f"whitney: {said}\n"
