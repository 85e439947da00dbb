"""The table of commands, and what happens when one of them fails.

The module of a command is imported when the command is called, or when the help lists all of them. It imports only
typer at the top: ``tradewind --help`` must not pay for numpy.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer
import typer.main

from tradewind import __version__
from tradewind.cli import output

if TYPE_CHECKING:
    app: typer.Typer

_FORM: dict[str, Any] = {
    "name": "tradewind",
    "help": "Find the cheapest configuration that finishes a job before its deadline, within a budget.",
    "no_args_is_help": True,
    "add_completion": True,
    "context_settings": {"help_option_names": ["-h", "--help"]},
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,
}

_COMMANDS = {
    "tune": "study.tune:tune",
    "run": "study.run:run",
    "recommend": "study.recommend:recommend",
    "status": "study.status:status",
    "logs": "study.logs:logs",
    "down": "study.down:down",
    "reap": "study.reap:reap",
    "report": "study.report:report",
    "export": "study.export:export",
    "import": "study.export:import_records",
    "bench": "study.bench:bench",
    "interpret": "study.interpret:interpret",
    "init": "job_file:init",
    "schema": "job_file:schema",
    "submit": "cluster.submit:submit",
    "queue": "cluster.queue:queue",
    "top": "cluster.queue:top",
    "cancel": "cluster.queue:cancel",
    "pause": "cluster.queue:pause",
    "resume": "cluster.queue:resume",
    "nice": "cluster.queue:nice",
    "serve": "service.serve:serve",
    "login": "service.login:login",
    "logout": "service.login:logout",
    "plugins": "plugins:plugins_command",
    "doctor": "doctor:doctor",
}
"""Module and function of each command, in the order of the help."""

_GROUPS = {
    "offers": "offers:offers_app",
    "workflow": "workflow:workflow_app",
    "cluster": "cluster.start:cluster_app",
    "tenant": "cluster.tenant:tenant_app",
    "request": "service.request:request_app",
    "application": "service.application:application_app",
    "backend": "service.backend:backend_app",
    "user": "service.user:user_app",
    "service": "service.maintenance:service_app",
}
"""Module and name of each group of commands, likewise."""


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"tradewind {__version__}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


def _app_of(names: Iterable[str]) -> typer.Typer:
    """The command line with some of the commands and groups: only their modules are imported."""
    made = typer.Typer(**_FORM)
    made.callback()(_root)
    for name in names:
        module, _, attribute = (_COMMANDS.get(name) or _GROUPS[name]).partition(":")
        found = getattr(import_module(f"tradewind.cli.{module}"), attribute)
        if name in _GROUPS:
            made.add_typer(found, name=name)
        else:
            made.command(name)(found)
    return made


@cache
def _whole() -> typer.Typer:
    return _app_of([*_COMMANDS, *_GROUPS])


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return _whole()


@cache
def _command(word: str) -> Callable[..., Any]:
    """Make the reader of the command line: the command of that name alone, or all of them where there is none.

    To import all modules of commands, and to make commands of their functions, takes a fifth of a second.
    """
    if word == "--version":
        return typer.main.get_command(_app_of([]))
    alone = word in _COMMANDS or word in _GROUPS
    return typer.main.get_command(_app_of([word]) if alone else _whole())


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
        other = globals().get("app")  # a program of its own may have put its commands there
        command = typer.main.get_command(other) if other else _command(words[0] if words else "")
        code = command(args=words, prog_name="tradewind", standalone_mode=False)
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
