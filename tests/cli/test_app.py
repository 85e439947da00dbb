from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import typer
import typer.main

import tradewind
from tradewind.cli import app as app_module
from tradewind.cli import main
from tradewind.cli.app import app, run
from tradewind.errors import BudgetError, InputError, InterruptedSearch, TradewindError
from tradewind.utils.paths import data_folder

PROGRAM = [sys.executable, "-m", "tradewind"]
HEAVY = (
    *("alembic", "asyncio", "jinja2", "matplotlib", "numpy", "pandas", "psutil", "pydantic", "rich", "scipy"),
    *("sqlalchemy", "yaml"),
)


def _names() -> list[str]:
    groups = [str(group.name) for group in app.registered_groups]
    return sorted([str(command.name) for command in app.registered_commands] + groups)


@pytest.fixture
def failing(monkeypatch: pytest.MonkeyPatch) -> list[BaseException]:
    """A command line whose only command raises what the test puts into the list."""
    wanted: list[BaseException] = []
    small = typer.Typer(pretty_exceptions_enable=False)

    @small.command()
    def fail() -> None:
        raise wanted[0]

    monkeypatch.setattr(app_module, "app", small)
    return wanted


def test_help_lists_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    shown = capsys.readouterr().out
    wanted = {"tune", "run", "status", "logs", "report", "export", "offers", "init", "plugins", "doctor"}
    assert wanted <= set(_names())
    for name in _names():
        assert f"\n  {name} " in shown


@pytest.mark.parametrize("name", _names())
def test_help_of_each_command_explains_every_option(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([name, "--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert any(line.strip() for line in lines[1:])
    lines = lines[lines.index("Options:") :]
    for i, line in enumerate(lines):
        if line.startswith("  --"):
            following = lines[i + 1] if i + 1 < len(lines) else ""
            described = len(line.split("  ")) > 2 or following.startswith("      ")
            assert described, f"{name}: {line.strip()} has no help"


@pytest.mark.slow
def test_a_command_that_is_made_alone_is_the_one_among_all(capsys: pytest.CaptureFixture[str]) -> None:
    every = typer.main.get_command(app)
    for name in _names():
        assert run([name, "--help"]) == 0
        alone = capsys.readouterr().out
        every(args=[name, "--help"], prog_name="tradewind", standalone_mode=False)
        assert capsys.readouterr().out == alone
    assert run(["tuned"]) == 2
    assert "No such command 'tuned'" in capsys.readouterr().err


@pytest.mark.parametrize("words", [[], ["tune"], ["offers", "refresh"], ["workflow", "plan"]])
def test_h_is_help(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*words, "--help"]) == 0
    whole = capsys.readouterr().out
    assert run([*words, "-h"]) == 0
    assert capsys.readouterr().out == whole


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"tradewind {tradewind.__version__}\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["--version"], ["tune", "--help"], ["workflow", "plan", "--help"], ["status", "-h"]])
def test_help_of_a_command_imports_nothing_heavy_either(words: list[str]) -> None:
    heavy = tuple(name for name in HEAVY if name != "pydantic")  # typer reads the words of a command with it
    assert _heavy_after(f"from tradewind.cli.app import run; run({words})", heavy) == "[]"


@pytest.mark.slow
def test_a_command_imports_the_modules_of_no_other() -> None:
    code = (
        "import sys; from tradewind.cli.app import run; run(['queue', '--help']); "
        "print(sorted(n for n in sys.modules if n.startswith('tradewind.cli.')), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert "'tradewind.cli.cluster.queue'" in done.stderr
    assert not re.search(r"'tradewind\.cli\.(study|workflow|service|offers|doctor)|cluster\.start", done.stderr)


@pytest.mark.slow
def test_parts_load_without_the_packages_that_they_work_with() -> None:
    """``doctor`` and ``plugins`` load all of them; what a part needs besides it imports when it is used."""
    needed = {"asyncio", "numpy", "pydantic", "sqlalchemy"}  # SQLAlchemy imports asyncio
    heavy = (*sorted(set(HEAVY) - needed), "docker", "fastapi", "kubernetes", "numba", "optuna", "ray", "sklearn")
    code = "from tradewind import plugins; [plugins.load_all(kind) for kind in plugins.KINDS]"
    assert _heavy_after(code, heavy) == "[]"


def _heavy_after(code: str, heavy: tuple[str, ...]) -> str:
    code = f"import sys; {code}; print([name for name in {heavy!r} if name in sys.modules], file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stderr.strip()


@pytest.mark.slow
def test_help_is_quick_and_imports_nothing_heavy() -> None:
    """The figure itself is measured by benchmarks/startup; here a loaded machine has to pass."""
    code = (
        "import sys; from tradewind.cli.app import run; run(['--help']); "
        f"print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)"
    )
    times = []
    for _ in range(3):
        started = time.perf_counter()
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=30)
        times.append(time.perf_counter() - started)
        assert done.returncode == 0
        assert done.stderr.strip() == "[]"
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    assert min(times) < 0.25 * 3 * crowd


@pytest.mark.slow
@pytest.mark.parametrize("words", [["fly"], ["doctor", "--fast"], ["plugins", "one", "two"]])
def test_wrong_command_lines_end_with_2_and_no_traceback(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and "Traceback" not in captured.err and words[-1] in captured.err


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) in (0, 2)
    captured = capsys.readouterr()
    assert "Commands:" in captured.out + captured.err


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        (BudgetError("no money", hint="raise it"), 5, "tradewind: no money (raise it)\n"),
        (InputError("odd", file="job.yaml", line=3), 3, "tradewind: job.yaml:3: odd\n"),
        (TradewindError("so"), 1, "tradewind: so\n"),
        (KeyboardInterrupt(), InterruptedSearch.exit_code, "tradewind: interrupted\n"),
    ],
)
def test_errors_are_one_line_and_their_exit_code(
    error: BaseException, code: int, line: str, failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(error)
    assert run([]) == code
    captured = capsys.readouterr()
    assert captured.err.lstrip("\n") == line and captured.out == ""


def test_unexpected_error_is_one_line_and_its_traceback_a_file(
    failing: list[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    failing.append(ZeroDivisionError("division by zero\nsecond line"))
    assert run([]) == 1
    (report,) = (data_folder() / "crashes").iterdir()
    said = capsys.readouterr().err
    assert said == f"tradewind: unexpected ZeroDivisionError: division by zero (please report it with {report})\n"
    assert "Traceback" in report.read_text() and "second line" in report.read_text()


def test_unexpected_error_where_no_file_can_be_written(
    failing: list[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRADEWIND_HOME", str(tmp_path / "file"))
    failing.append(RuntimeError())
    assert run([]) == 1
    assert capsys.readouterr().err == "tradewind: unexpected RuntimeError: no message (please report it)\n"


@pytest.mark.slow
@pytest.mark.parametrize("words", [["plugins", "--json"], ["--version"]], ids=["much", "little"])
def test_reader_that_goes_away_is_no_error(words: list[str]) -> None:
    """As in ``tradewind plugins --json | head -c 1``: the pipe is closed before anything is written."""
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*PROGRAM, *words], stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert done.returncode == 0
    assert done.stderr == ""


@pytest.mark.slow
def test_program_and_module_are_the_same() -> None:
    script = Path(sys.executable).with_name("tradewind")
    by_script = subprocess.run([script, "--version"], capture_output=True, text=True, timeout=30)
    by_module = subprocess.run([*PROGRAM, "--version"], capture_output=True, text=True, timeout=30)
    assert by_script.stdout == by_module.stdout == f"tradewind {tradewind.__version__}\n"


@pytest.mark.slow
def test_exit_code_reaches_the_shell() -> None:
    done = subprocess.run([*PROGRAM, "plugins", "--kind", "wizard"], capture_output=True, text=True, timeout=30)
    assert done.returncode == 13
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
def test_interrupt_while_a_command_runs() -> None:
    code = (
        # Whoever runs the tests in the background of a shell has them ignore it.
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "import sys, time, typer; from tradewind.cli import app as m\n"
        "m.app = typer.Typer(pretty_exceptions_enable=False)\n"
        "@m.app.command()\n"
        "def wait() -> None:\n"
        "    print('ready', flush=True)\n"
        # A signal that comes right before a long sleep would be handled after it.
        "    while True: time.sleep(0.05)\n"
        "sys.exit(m.run([]))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in said


def test_unexpected_error_of_a_user_without_a_home(
    failing: list[BaseException], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TRADEWIND_HOME", "~no-such-user")
    failing.append(RuntimeError())
    assert run([]) == 1
    assert capsys.readouterr().err == "tradewind: unexpected RuntimeError: no message (please report it)\n"


def test_an_interrupt_while_the_commands_load_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Pressed:
        """A module that is being loaded when Ctrl-C is pressed."""

        def __getattr__(self, name: str) -> None:
            raise KeyboardInterrupt

    monkeypatch.setitem(sys.modules, "tradewind.cli.app", Pressed())
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 130
    assert capsys.readouterr().err == "tradewind: interrupted\n"
