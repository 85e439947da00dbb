"""The table of commands, and what happens when one of them fails.

Modules of commands import only typer at the top: ``tradewind --help`` must not pay for numpy.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Annotated, Any

import typer
import typer.main

from tradewind import __version__
from tradewind.cli import doctor, job_file, offers, output, plugins
from tradewind.cli import job_file as schema
from tradewind.cli.cluster import add_to
from tradewind.cli.service import add_to as add_service_to
from tradewind.cli.study import bench, down, export, interpret, logs, reap, recommend, report, status, tune
from tradewind.cli.study import run as run_command
from tradewind.cli.workflow import workflow_app

_FORM: dict[str, Any] = {
    "name": "tradewind",
    "help": "Find the cheapest configuration that finishes a job before its deadline, within a budget.",
    "no_args_is_help": True,
    "add_completion": True,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}

app = typer.Typer(**_FORM)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tradewind {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


app.command("tune")(tune.tune)
app.command("run")(run_command.run)
app.command("recommend")(recommend.recommend)
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("down")(down.down)
app.command("reap")(reap.reap)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("import")(export.import_records)
app.command("bench")(bench.bench)
app.command("interpret")(interpret.interpret)
app.command("init")(job_file.init)
app.command("schema")(schema.schema)
app.add_typer(offers.offers_app, name="offers")
app.add_typer(workflow_app, name="workflow")
add_to(app)
add_service_to(app)
app.command("plugins")(plugins.plugins_command)
app.command("doctor")(doctor.doctor)


@cache
def _command(whole: typer.Typer, word: str) -> Callable[..., Any]:
    """Make the reader of the command line: the command of that name alone, or all of them where there is none.

    To make one out of a function takes milliseconds, and all of them a tenth of a second.
    """
    commands = [each for each in whole.registered_commands if each.name == word]
    groups = [each for each in whole.registered_groups if each.name == word]
    if not commands and not groups:
        return typer.main.get_command(whole)
    small = typer.Typer(**_FORM)
    small.callback()(_root)
    small.registered_commands, small.registered_groups = commands, groups
    return typer.main.get_command(small)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``tradewind``; those of this process when None.

    Returns:
        The exit code.
    """
    output.prepare()
    code = _run(arguments)
    if why := output.finish():
        from tradewind.errors import InputError

        print(f"tradewind: {why} (free some space, or send it elsewhere)", file=sys.stderr)
        return InputError.exit_code
    return code


def _run(arguments: Sequence[str] | None) -> int:
    from tradewind.errors import InterruptedSearch, TradewindError

    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        code = _command(app, words[0] if words else "")(args=words, prog_name="tradewind", standalone_mode=False)
        if code == InterruptedSearch.exit_code:  # typer makes a number of an interrupt
            print("tradewind: interrupted", file=sys.stderr)
        return code if isinstance(code, int) else 0
    except SystemExit as end:
        if any(isinstance(hidden, BrokenPipeError) for hidden in _behind(end)):  # typer makes a number of it
            output.drop()
            return 0
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except TradewindError as error:
        print(f"tradewind: {output.one_line(str(error))}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        if type(error).__name__ == "NoArgsIsHelpError":
            print(error, file=sys.stderr)
            return 2
        if isinstance(error, OSError) and error.filename is None and output.blocked():
            return 1  # `run` says why
        usage = _usage(error)
        print(f"tradewind: {usage or _unexpected(error)}", file=sys.stderr)
        return 2 if usage else 1


def _usage(error: Exception) -> str:
    """Say in one line what is wrong with the command line; empty when the error is another one."""
    words: Callable[[], str] | None = getattr(error, "format_message", None)
    if words is None or getattr(error, "exit_code", None) != 2:
        return ""
    context = getattr(error, "ctx", None)
    command = context.command_path if context is not None else "tradewind"
    said = output.one_line(words()).rstrip(".").replace(": Value error, ", ": ")  # pydantic's, not the user's
    return f"{said} ({command} --help shows what there is)"


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The errors during whose handling this one was raised, the latest first."""
    while error.__context__ is not None:
        error = error.__context__
        yield error


def _unexpected(error: Exception) -> str:
    """Keep the traceback of an error that nobody foresaw in a file, and say where."""
    from tradewind.errors import InputError
    from tradewind.utils.paths import data_folder

    first = output.one_line(str(error).strip().partition("\n")[0])
    line = f"unexpected {type(error).__name__}: {first or 'no message'}"
    try:
        folder = data_folder() / "crashes"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
        path.write_text("".join(traceback.format_exception(error)))
    except (OSError, InputError):
        return line + " (please report it)"
    return f"{line} (please report it with {path})"
