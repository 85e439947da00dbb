"""Paths of Tradewind's data and of what its programs share, and the meaning of ``~`` in paths of other users."""

from __future__ import annotations

import errno
import os
import stat
from itertools import takewhile
from pathlib import Path

from platformdirs import user_data_path

from tradewind.errors import InputError, PrerequisiteError

SLOTS = "TRADEWIND_SLOTS"
"""The variable with the folder of the registry of slots (`slots_folder`), where it is not the usual one."""


def data_folder() -> Path:
    """The folder of the store, the runs and refreshed prices.

    ``TRADEWIND_HOME`` if set, else the user's data folder for ``tradewind``. It is not created here.

    Raises:
        InputError: ``TRADEWIND_HOME`` is not set and the user has no home, as in a container that runs as a number
            that its passwd does not have; or the name is no UTF-8, which databases need.
    """
    home = os.environ.get("TRADEWIND_HOME")
    try:
        folder = expand(home).absolute() if home else user_data_path("tradewind")
    except RuntimeError as error:
        raise _homeless() from error
    if not folder.is_absolute():  # older platformdirs leave the ~ as it is
        raise _homeless()
    try:
        os.fspath(folder).encode("utf-8")
    except UnicodeEncodeError as error:
        raise InputError(
            f"the data folder {os.fspath(folder)!a} has a name that is not UTF-8",
            hint="set TRADEWIND_HOME to another one, and LANG to a UTF-8 locale such as C.UTF-8",
        ) from error
    return folder


def make_private(folder: Path) -> None:
    """Make a folder that only this user may enter, and those above it likewise; one that is there stays as it is.

    Raises:
        OSError: It cannot be made.
    """
    # With `parents=True` those above would be open to all: the first command may make the data folder in passing.
    for each in reversed((folder, *takewhile(lambda parent: not parent.exists(), folder.parents))):
        each.mkdir(mode=0o700, exist_ok=True)


def _homeless() -> InputError:
    return InputError(
        f"the user {os.getuid()} has no home folder to keep data in",
        hint="set TRADEWIND_HOME to a folder that this user may write to",
    )


def slots_folder() -> Path:
    """The folder in which all programs of a user note which runs have which CPUs of this machine; it is made.

    ``TRADEWIND_SLOTS`` if set, else a folder in ``/tmp``: it is the same one for each session and each data folder.
    A container with processes of its own has one of its own.

    Raises:
        PrerequisiteError: It cannot be made, or others may write there.
    """
    given = os.environ.get(SLOTS)
    folder = Path(given).absolute() if given else Path(f"/tmp/tradewind-{os.getuid()}")  # noqa: S108  (checked below)
    try:
        folder.mkdir(mode=0o700, parents=bool(given), exist_ok=True)
        found = folder.lstat()
        if not given and (found.st_uid != os.getuid() or found.st_mode & 0o022 or not stat.S_ISDIR(found.st_mode)):
            raise PermissionError(errno.EPERM, "others may write there")
        return folder if given else folder / f"slots-{os.stat('/proc/self/ns/pid').st_ino:x}"  # noqa: PTH116
    except OSError as error:
        raise PrerequisiteError(
            f"runs on this machine cannot be noted in {folder}: {error.strerror}",
            hint=f"set {SLOTS} to a folder of your own",
        ) from error


def store_url() -> str:
    """The address of the store: ``TRADEWIND_STORE`` if set, else an SQLite file in the data folder."""
    return os.environ.get("TRADEWIND_STORE") or f"sqlite:///{data_folder() / 'tradewind.db'}"


def expand(path: str | Path) -> Path:
    """A path that somebody wrote, with the home folder in the place of ``~`` and ``~NAME``.

    Raises:
        InputError: There is no such user, or this one has no home.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError as error:
        who = Path(path).parts[0]
        raise InputError(f"there is no home folder {who} for {os.fspath(path)}", hint="write the path out") from error
