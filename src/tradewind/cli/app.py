"""The table of commands, and what happens when one of them fails.

Modules of commands import only typer at the top: ``tradewind --help`` must not pay for numpy.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Annotated

import typer

from tradewind import __version__
from tradewind.cli import doctor, export, init, logs, offers, plugins, report, schema, status, tune
from tradewind.cli import run as run_command

app = typer.Typer(
    name="tradewind",
    help="Find the cheapest configuration that finishes a job before its deadline, within a budget.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


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
app.command("status")(status.status)
app.command("logs")(logs.logs)
app.command("report")(report.report)
app.command("export")(export.export)
app.command("import")(export.import_records)
app.command("init")(init.init)
app.command("schema")(schema.schema)
app.add_typer(offers.offers_app, name="offers")
app.command("plugins")(plugins.plugins_command)
app.command("doctor")(doctor.doctor)


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: The words after ``tradewind``; those of this process when None.

    Returns:
        The exit code.
    """
    code = _run(arguments)
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
    return code


def _run(arguments: Sequence[str] | None) -> int:
    from tradewind.errors import InterruptedSearch, TradewindError

    try:
        app(args=list(arguments) if arguments is not None else None, prog_name="tradewind")
    except SystemExit as end:
        if end.code in (1, InterruptedSearch.exit_code):
            for hidden in _behind(end):  # typer makes numbers of an interrupt and of a closed pipe
                if isinstance(hidden, KeyboardInterrupt):
                    print("tradewind: interrupted", file=sys.stderr)
                    return InterruptedSearch.exit_code
                if isinstance(hidden, BrokenPipeError):
                    _drop_output()
                    return 0
        return end.code if isinstance(end.code, int) else 1 if end.code else 0
    except TradewindError as error:
        print(f"tradewind: {error}", file=sys.stderr)
        return error.exit_code
    except Exception as error:
        print(f"tradewind: {_unexpected(error)}", file=sys.stderr)
        return 1
    return 0


def _drop_output() -> None:
    """The reader of our output (head, less) has gone: what is still in our buffers goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


def _behind(error: BaseException) -> Iterator[BaseException]:
    """The errors during whose handling this one was raised, the latest first."""
    while error.__context__ is not None:
        error = error.__context__
        yield error


def _unexpected(error: Exception) -> str:
    """Keep the traceback of an error that nobody foresaw in a file, and say where."""
    from tradewind.paths import data_folder

    line = f"unexpected {type(error).__name__}: {str(error).splitlines()[0] if str(error) else 'no message'}"
    try:
        folder = data_folder() / "crashes"
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}.txt"
        path.write_text("".join(traceback.format_exception(error)))
    except OSError:
        return line + " (please report it)"
    return f"{line} (please report it with {path})"
