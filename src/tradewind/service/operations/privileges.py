"""Privileges of the server: one that is started as root becomes another user before it opens anything of its users."""

from __future__ import annotations

import ipaddress
import os
import pwd
import sys
from pathlib import Path

from tradewind.errors import InputError, ServiceError
from tradewind.service.settings import ServiceSettings

USERS = ("tradewind", "nobody")
"""Users of the system that a server becomes where none is named: the first that there is."""


def leave_root(settings: ServiceSettings, data_folder: Path) -> str:
    """Become the user that the settings name, for good, where the server was started as root.

    Programs of users run with the rights of the server, and what it reads for them is read with its rights. A server
    that answers this machine only, and for which nobody was named, stays root where the user cannot reach what it
    needs, and says so.

    Args:
        settings: The server's settings.
        data_folder: Folder for runs, runners and refreshed prices; it becomes that user's.

    Returns:
        A line about it for whoever started the server; empty where nothing is to be said.

    Raises:
        InputError: There is no such user, or the server may not become it.
        ServiceError: That user cannot reach what the server needs; nothing has changed then.
    """
    if os.geteuid() != 0:
        if settings.user and settings.user != pwd.getpwuid(os.geteuid()).pw_name:
            raise InputError(f"only root may start a server as {settings.user}", hint="leave user out")
        return ""
    if settings.user == "root" or (not settings.user and settings.allow_root):
        if not settings.allow_root:
            raise InputError("a server that runs as root has to be allowed", hint="write --allow-root, too")
        return "This server runs as root, and so do the programs of its users; --user NAME is safer"
    user = _user(settings.user)
    if error := _out_of_reach(data_folder, user):
        if settings.user or not _local(settings.host):
            raise error
        return f"This server runs as root, and so do the programs of its users: {error}"
    _hand_over(data_folder, user)
    _become(user)
    os.environ.update({"HOME": user.pw_dir, "USER": user.pw_name, "LOGNAME": user.pw_name})
    return f"Started as root, this server and the programs of its users run as {user.pw_name} (--user NAME: another)"


def _local(host: str) -> bool:
    """True where only this machine can call."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _become(user: pwd.struct_passwd) -> None:
    os.initgroups(user.pw_name, user.pw_gid)
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)


def _user(name: str) -> pwd.struct_passwd:
    for one in (name,) if name else USERS:
        try:
            return pwd.getpwnam(one)
        except KeyError:
            continue
    missing = name or " or ".join(USERS)
    raise InputError(f"this system has no user {missing}", hint="useradd --system tradewind makes one")


def _hand_over(folder: Path, user: pwd.struct_passwd) -> None:
    """Give a folder of root's to the user, with all that is root's below it.

    One that is not root's is left alone: there, its owner could lead this to any file of the system.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if folder.stat().st_uid != 0:
        return
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            os.chown(Path(place) / name, user.pw_uid, user.pw_gid, follow_symlinks=False)
    os.chown(folder, user.pw_uid, user.pw_gid)


def _out_of_reach(folder: Path, user: pwd.struct_passwd) -> ServiceError | None:
    """The error for what the user cannot use, as a child process finds that has become the user."""
    folder.mkdir(parents=True, exist_ok=True)
    handed_over = folder.stat().st_uid == 0
    needed = [
        (folder.parent, os.X_OK) if handed_over else (folder, os.R_OK | os.W_OK | os.X_OK),
        (Path(sys.executable), os.R_OK),
        (Path(__file__), os.R_OK),
    ]
    child = os.fork()
    if not child:
        missing = len(needed)
        try:
            _become(user)
            missing = next((place for place, (path, mode) in enumerate(needed, 1) if not os.access(path, mode)), 0)
        finally:
            os._exit(missing)
    missing = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if not missing:
        return None
    others = "name a user who can by --user, or let the server be root by --allow-root"
    if missing == 1:
        hint = f"set TRADEWIND_HOME to a folder such as /var/lib/tradewind; {others}"
        return ServiceError(f"the user {user.pw_name} cannot use the data folder {folder}", hint=hint)
    return ServiceError(f"the user {user.pw_name} cannot read {needed[missing - 1][0]}", hint=others)
