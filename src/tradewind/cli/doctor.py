"""``tradewind doctor``: what Tradewind needs of this machine, and what is missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from tradewind.plugins import Plugin

OLDEST_SENSIBLE_TIME = 1_735_689_600  # 2025-01-01: Tradewind did not exist before
SMALLEST_DISK = 200 * 2**20
EXTRAS = {
    "matplotlib": "plots",
    "pandas": "pandas",
    "polars": "polars",
    "psycopg": "postgresql",
    "obstore": "files",
    "keyring": "keyring",
    "numba": "fast",
    "gymnasium": "learning",
    "fastapi": "service",
    "httpx2": "client",
}
"""Optional packages, and the extra that brings each; those that a part needs are said of the part."""

BACKENDS = ("provisioner", "runner")
"""Kinds of part that work with programs and daemons of others: of each it is said whether it can be used."""


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that was looked at.

    Attributes:
        what: The thing.
        ok: True when it is as it should be.
        found: What was found.
        needed: True when Tradewind cannot work without it; otherwise only some part of it needs it.
        hint: What to do about it.
    """

    what: str
    ok: bool
    found: str
    needed: bool = True
    hint: str = ""

    @property
    def word(self) -> str:
        """``ok``, ``missing`` (needed) or ``optional`` (only some part needs it)."""
        return "ok" if self.ok else "missing" if self.needed else "optional"


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="Print the checks as JSON.")] = False,
) -> None:
    """Check what Tradewind needs of this machine.

    Ends with exit code 9 if something is missing that every study needs.
    """
    from tradewind.cli.common import emit_json
    from tradewind.errors import MissingProgramError

    checks = list(run_checks())
    missing = [check.what for check in checks if check.needed and not check.ok]
    if as_json:
        emit_json({"ok": not missing, "checks": [{**asdict(check), "state": check.word} for check in checks]})
    else:
        _print(checks)
    if missing:
        raise MissingProgramError(f"not as it should be: {', '.join(missing)}", hint="what to do stands beside it")


def run_checks() -> Iterator[Check]:
    """Look at everything; nothing is changed, and a folder that is not there is not made."""
    yield from _machine()
    yield from _storage()
    yield from _packages()
    yield from _parts()


def _machine() -> Iterator[Check]:
    import os
    import platform
    import sys
    import time

    import psutil

    from tradewind.utils.machine.gpus import describe_gpus, gpus_here, why_none
    from tradewind.utils.units import format_memory

    yield Check("Python", sys.version_info >= (3, 11), platform.python_version(), hint="install Python 3.11 or later")
    yield Check(
        "platform",
        sys.platform == "linux",
        f"{platform.system()} {platform.release()} {platform.machine()}",
        hint="only Linux is tested; on Windows use WSL 2",
    )
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 0
    total = os.cpu_count() or 1
    yield Check("CPUs", True, f"{affinity or total} of {total} may be used", needed=False)
    memory = psutil.virtual_memory()
    yield Check(
        "memory",
        memory.available >= 2**29,
        f"{format_memory(memory.available)} free of {format_memory(memory.total)}",
        needed=False,
        hint="less than 512 MiB are free: runs may be killed",
    )
    gpus = gpus_here()
    yield Check(
        "GPUs",
        bool(gpus),
        describe_gpus(gpus),
        needed=False,
        hint=why_none()
        or "nvidia-smi, /proc/driver/nvidia and rocm-smi name none: install the driver where there should be some",
    )
    yield Check(
        "process limits",
        _process_files() and hasattr(os, "sched_setaffinity"),
        "/proc and CPU affinity" if _process_files() else "no /proc",
        hint="the process runner reads /proc to limit runs and to find them again; mount it",
    )
    if affinity:
        yield _slots()
    now = time.time()
    yield Check(
        "clock",
        now >= OLDEST_SENSIBLE_TIME,
        time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(now)),
        hint="set the system's clock: prices and bills carry its date",
    )


def _slots() -> Check:
    """Say which searches run on this machine now, or why none can."""
    import os

    from tradewind.deployer.runner.warden.slots import describe_slots
    from tradewind.errors import TradewindError
    from tradewind.utils.paths import slots_folder

    try:
        return Check("slots", True, describe_slots(str(slots_folder()), os.sched_getaffinity(0)), needed=False)
    except TradewindError as error:
        return Check("slots", False, error.message, hint=error.hint or "")
    except OSError as error:
        return Check("slots", False, str(error), hint="set TRADEWIND_SLOTS to a folder of your own")


def _process_files() -> bool:
    from pathlib import Path

    return Path("/proc/self/stat").is_file()


def _storage() -> Iterator[Check]:
    import shutil

    from tradewind.utils.paths import data_folder
    from tradewind.utils.units import format_memory

    folder = data_folder()
    there = _nearest_existing(folder)
    reason = _why_not_writable(there)
    yield Check(
        "data folder",
        not reason,
        reason or (str(folder) if there == folder else f"{folder} (made when it is first needed)"),
        hint="set TRADEWIND_HOME to a folder that you may write to",
    )
    free = shutil.disk_usage(there).free
    yield Check(
        "disk", free >= SMALLEST_DISK, f"{format_memory(free)} free at {there}", hint="free some space on that disk"
    )
    yield _store()


def _nearest_existing(folder: Path) -> Path:
    return next(place for place in (folder, *folder.parents) if place.exists())


def _why_not_writable(folder: Path) -> str:
    import tempfile

    if not folder.is_dir():
        return f"{folder} is not a folder"
    try:
        with tempfile.TemporaryFile(dir=folder) as file:  # os.access tells root the wrong thing
            file.write(b"x")
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror}"
    return ""


def _store() -> Check:
    from sqlalchemy.engine import make_url
    from sqlalchemy.exc import ArgumentError

    from tradewind.cli.common import open_store
    from tradewind.errors import StudyNotFoundError, TradewindError
    from tradewind.passwords import hide_password
    from tradewind.utils.paths import store_url

    try:
        address = hide_password(make_url(store_url()).render_as_string(hide_password=False))
    except ArgumentError:
        return Check("store", False, "TRADEWIND_STORE is not an address", hint="write sqlite:////absolute/path.db")
    try:
        store = open_store(must_exist=True)
    except StudyNotFoundError:
        return Check("store", True, f"{address} (made by the first study)")
    except TradewindError as error:
        return Check("store", False, error.message, hint=error.hint or "")
    store.close()
    return Check("store", True, address)


def _packages() -> Iterator[Check]:
    from importlib.metadata import PackageNotFoundError, version

    from tradewind.utils.dependencies import install_command

    for package, extra in EXTRAS.items():
        try:
            yield Check(package, True, version(package), needed=False)
        except PackageNotFoundError:
            yield Check(package, False, "not installed", needed=False, hint=install_command(extra))


def _parts() -> Iterator[Check]:
    from tradewind import plugins

    broken = {(row.kind, row.name): row.reason for row in plugins.broken()}
    working = 0
    for kind in plugins.KINDS:
        for name in plugins.names(kind):
            if (kind, name) in broken:
                package = plugins.origin(kind, name)[0]
                hint = f"install {package} again, or without it" if package else "install it again"
                yield Check(f"{kind} {name}", False, broken[kind, name], package == "tradewind", hint)
                continue
            working += 1
            part = plugins.load(kind, name)
            check = _needs(part, f"{kind} {name}")
            # Of most other parts there is nothing to say.
            if kind in BACKENDS or part.needs or not check.ok:
                yield check
            yield from _ask_part(part, f"{kind} {name}")
    yield Check("parts", working > 0, f"{working} load, {len(broken)} do not", hint="install Tradewind again")


def _needs(part: type[Plugin], title: str) -> Check:
    """Say whether the programs, packages and daemons that a part works with are there."""
    try:
        what, _, hint = part.missing().partition(": ")
    except Exception as error:  # an outside package's code: its mistake is a finding like any other
        return Check(title, False, f"its missing() raised {type(error).__name__}: {error}", needed=False)
    return Check(title, not what, what or "can be used", needed=False, hint=hint)


def _ask_part(part: Any, title: str) -> Iterator[Check]:
    """Ask a part for its needs: its optional class method ``doctor`` gives (what, ok, hint) triples."""
    ask = getattr(part, "doctor", None)
    if ask is None:
        return
    try:
        rows = [(str(what), bool(ok), str(hint)) for what, ok, hint in ask()]
    except Exception as error:  # an outside package's code: its mistake is a finding like any other
        yield Check(title, False, f"its doctor() raised {type(error).__name__}: {error}", needed=False)
        return
    for what, ok, hint in rows:
        yield Check(f"{title}: {what}", ok, "there" if ok else "not there", needed=False, hint="" if ok else hint)


def _print(checks: Sequence[Check]) -> None:
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=1000)
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("", "what", "found", "what to do"):
        table.add_column(title, no_wrap=title in ("", "what"), overflow="fold")
    colours = {"ok": "green", "missing": "bold red", "optional": "yellow"}
    for check in checks:
        hint = "" if check.ok else check.hint
        word = f"[{colours[check.word]}]{check.word}[/]"
        table.add_row(word, escape(check.what), escape(check.found), escape(hint))
    console.print(table)
