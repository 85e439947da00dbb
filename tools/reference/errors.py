"""errors.md: the tree of errors with their codes and exit codes, and what to do about each."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

import tradewind
from reference.text import code_marks, page, table
from tradewind.errors import TradewindError

INTRO = """\
Whatever Tradewind refuses, it refuses with one line on the standard error: what is wrong, where, and what to do. The
process then ends with the exit code of the error, so that a script can tell them apart. From Python the same errors
are exceptions below `tradewind.errors.TradewindError`; `code` does not change between versions, the words may.
[Wrong inputs](wrong-inputs.md) shows the line and the exit code of many a wrong input."""

OTHER_CODES = [
    ("0", "It worked."),
    (
        "1",
        "A mistake in Tradewind itself; the line names the file with the details. Please report it. Without a line it "
        "is the answer of `service migrate --check`: the store is to be migrated.",
    ),
    ("2", "The command line is wrong: an unknown command or option, a missing argument."),
]

WHAT_TO_DO = {
    "error": "Read the line; this code is for errors that have no better one.",
    "input": "Correct the file, at the line that is named.",
    "input.spec": "Correct the job YAML at the line that is named; [yaml.md](yaml.md) lists all keys.",
    "input.catalogue": "Correct the row of the price list; [Offers](../guides/offers.md) shows its columns.",
    "input.record": "Correct the record or the row; `tradewind export` writes what `import` reads.",
    "input.configuration": "Give values that are in the space; the line says which are.",
    "no-offer": "Loosen `offers`, select with `nearest` in place of `exact`, or read `tradewind offers`.",
    "budget": "Raise `budget.dollars`, or allow cheaper offers: one run costs more than the whole budget.",
    "nothing-feasible": "Loosen the deadline or the thresholds, or raise the budget; `tradewind report` says more.",
    "job-failed": "Read `tradewind logs`: your program ended with an error on this configuration.",
    "limit-reached": "The line says which limit: raise it (`deploy.longest`, `--budget`, the engine's own), or leave "
    "out `--abort`.",
    "interpretation": "Look at `tradewind logs` and at the interpreter's settings: the metric was not in the output.",
    "deploy.capacity": "Try later, another zone or region, or ask the provider for a larger quota.",
    "deploy.prerequisite": "Bring the input, secret, partition or network that the message names, or name another; the "
    "same command goes on.",
    "deploy.credentials": "See that the engine or provider knows you from this shell; its guide says how.",
    "deploy.architecture": "Build the program or the image for the machine's processor, or choose offers by `arch`.",
    "deploy.image": "Name an image that exists where it is looked for, or bring it there.",
    "deploy.offer": "Take the offer out of the space (`offers:`), or correct the template that is named.",
    "deploy.unreachable": "See that the host or the engine is up and can be reached from here.",
    "input.workflow": "Correct the workflow, the plan or the machines at the place that is named.",
    "input.form": "Correct the fields that are named; each has a message of its own.",
    "missing-program": "Install what is named; `tradewind doctor` shows everything that is missing.",
    "missing-program.job": "Give a program that is there and executable, on each machine or in the image.",
    "deploy": "Try again; if it stays, `tradewind doctor` and the provider's own page say more.",
    "teardown": "Look at the provider's page and end the machines by hand: they may still cost money.",
    "store": "Read the line; `tradewind doctor` checks the store.",
    "store.locked": "Wait for the other program, or end it; several machines need PostgreSQL.",
    "store.full": "Free space on that disk; then run the same command again, nothing stored is lost.",
    "store.read-only": "Set `TRADEWIND_HOME` to a folder that you may write to.",
    "store.corrupt": "Set `TRADEWIND_STORE` to another file, or install the newer version that wrote this one.",
    "store.study-busy": "Another process is running this study: watch it with `tradewind status`, or end it.",
    "store.study-not-found": "See `tradewind status` for the names of the studies.",
    "plugin": "See `tradewind plugins` for the names, and for the parts that do not load.",
    "fetch": "Try again later; until then the prices that came with Tradewind, or the last good ones, are used.",
    "service": "The message says what the service did not like; `tradewind serve` must be running for `--server`.",
    "service.sign-in": "Sign in again, or make another token with `tradewind user token`.",
    "service.forbidden": "Ask an administrator of the service.",
    "service.not-found": "List what there is; what belongs to other tenants is not shown.",
    "service.conflict": "Look at its present state, and try again if that still makes sense.",
    "service.quota": "Wait until something of your tenant ends, ask for less (a smaller budget), or ask an "
    "administrator for more.",
    "service.busy": "Wait as long as the answer says; an administrator can allow more, or start another server.",
    "service.too-large": "Send less at once, or ask the administrator for a larger `max_body_mib`.",
    "service.away": "See that the server runs and can be reached; one that is started anew is there in seconds.",
    "service.slow": "Send it again; the connection was too slow.",
    "service.too-many": "Wait as long as the answer says, and ask less often.",
    "no-history": "Run the job with a few parameters first: `tradewind tune`, or `tradewind run --set ...`.",
    "interrupted": "Nothing: the same command goes on where it stopped.",
}


def write() -> str:
    """The page."""
    found = all_errors()
    rows = [
        [f"`{e.code}`", str(e.exit_code), f"`{e.__name__}`", _first_sentence(e), WHAT_TO_DO.get(e.code, "")]
        for e in found
    ]
    return page(
        "Errors and exit codes",
        INTRO,
        "## Exit codes",
        table(["exit code", "meaning"], [*OTHER_CODES, *_by_exit_code(found)]),
        "## Error codes",
        table(["code", "exit code", "class", "meaning", "what to do"], rows),
        "## The tree",
        "```text\n" + _tree(TradewindError) + "\n```",
    )


def all_errors() -> list[type[TradewindError]]:
    """Every error class of the package that has a code of its own, by code; others are kinds of it within a room."""
    for module in pkgutil.walk_packages(tradewind.__path__, "tradewind."):
        if "__main__" not in module.name and ".migrations." not in module.name:
            importlib.import_module(module.name)
    found = {TradewindError}
    waiting = [TradewindError]
    while waiting:
        children = [c for c in waiting.pop().__subclasses__() if c.__module__.startswith("tradewind.")]
        found.update(children)
        waiting += children
    return sorted((e for e in found if "code" in vars(e)), key=lambda e: (e.code, e.__name__))


def _by_exit_code(found: list[type[TradewindError]]) -> list[tuple[str, str]]:
    codes = sorted({e.exit_code for e in found} - {1})
    return [(str(c), "; ".join(f"`{e.code}`" for e in found if e.exit_code == c)) for c in codes]


def _first_sentence(error: type[TradewindError]) -> str:
    return code_marks((inspect.getdoc(error) or "").partition("\n")[0])


def _tree(error: type[TradewindError], depth: int = 0) -> str:
    children = sorted(
        (c for c in error.__subclasses__() if c.__module__.startswith("tradewind.") and c.__name__[0] != "_"),
        key=lambda c: (c.exit_code, c.code),
    )
    line = f"{'    ' * depth}{error.__name__:<{40 - 4 * depth}}{error.exit_code:>4}"
    return "\n".join([line, *(_tree(c, depth + 1) for c in children)])
