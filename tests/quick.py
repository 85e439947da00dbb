"""``tradewind`` as a process that starts at once: a copy of one that has imported everything already.

A test that needs real processes, many of them, would otherwise wait a second for each to import its packages. The
fixture ``quick`` of conftest.py gives a program that stands for ``tradewind``. It is a small one of its own, so that
all that a test does to a process works: it has the caller's folder, environment and files, it ends with the
exit code of the command, passes signals on, and who kills it kills the command. The environment variable
``TRADEWIND_TESTS_BEFORE`` holds Python that runs before the command.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[1]

_IMPORTED = (
    "alembic.command", "jinja2", "numpy", "rich.live", "rich.progress", "rich.table", "scipy.optimize", "scipy.special",
    "sqlalchemy.orm", "tradewind.cli.app", "tradewind.engine.search", "tradewind.engine.recommendations",
    "tradewind.reporting.study.terminal", "tradewind.store.studies.sql_store", "tradewind.tenancy.shared_cluster",
    "tradewind.workflow.execution.plan_run", "tradewind.workflow.execution.stored.store_journal",
    "tradewind.workflow.files", "tradewind.workflow.kernel_bounds", "tradewind.workflow.kernel_general",
    "tradewind.workflow.kernel_plain", "tradewind.workflow.kernel_simulate",
)  # fmt: skip

_FRONT = """#!{python} -IS
import json, os, signal, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    given = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ)]).encode()
    socket.send_fds(link, [len(given).to_bytes(8, "big")], [0, 1, 2])
    link.sendall(given)
    answers = link.makefile()
    pid = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda number, frame: os.kill(pid, number))
    code = int(answers.readline())
if code < 0:
    signal.signal(-code, signal.SIG_DFL) if -code != signal.SIGKILL else None
    os.kill(os.getpid(), -code)
sys.exit(code)
"""


_Given = tuple[list[str], str, dict[str, str]]
"""The words of a command, its folder and its environment."""


@contextmanager
def program() -> Iterator[Path]:
    """A program that is ``tradewind`` at once, as long as the context lasts."""
    with tempfile.TemporaryDirectory(prefix="tradewind-quick-") as folder:
        address = str(Path(folder) / "socket")
        front = Path(folder) / "tradewind"
        front.write_text(_FRONT.format(python=sys.executable, address=address))
        front.chmod(0o700)
        command = [sys.executable, "-m", "tests.quick", address]
        with subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        ) as server:
            assert server.stdin is not None
            assert server.stdout is not None
            assert server.stdout.readline() == "ready\n"
            yield front
            server.stdin.close()


class _Server:
    """Answers one connection after the other with a copy of itself, and watches over the copies."""

    def __init__(self, address: str) -> None:
        self._select = selectors.DefaultSelector()
        self._listening = socket.socket(socket.AF_UNIX)
        self._listening.bind(address)
        self._listening.listen(64)
        self._select.register(self._listening, selectors.EVENT_READ)
        self._select.register(sys.stdin, selectors.EVENT_READ)

    def serve(self) -> _Given | None:
        """Until the standard input ends; in a copy, what it is to do."""
        while True:
            for key, _ in self._select.select():
                if key.fileobj is sys.stdin:
                    return None
                if key.fileobj is self._listening:
                    link, _ = self._listening.accept()
                    if (given := self._copy(link)) is not None:
                        return given
                else:
                    self._ended(key)

    def _copy(self, link: socket.socket) -> _Given | None:
        head, files, _, _ = socket.recv_fds(link, 8, 3)
        with link.makefile("rb") as lines:
            text = lines.read(int.from_bytes(head, "big"))
        if len(text) < int.from_bytes(head, "big") or not head:  # who asked was killed before the question was out
            link.close()
            for file in files:
                os.close(file)
            return None
        given: _Given = tuple(json.loads(text))
        pid = os.fork()
        if pid:
            for file in files:
                os.close(file)
            _say(link, pid)
            watch = os.pidfd_open(pid)
            self._select.register(watch, selectors.EVENT_READ, (pid, watch, link))
            self._select.register(link, selectors.EVENT_READ, (pid, watch, link))
            return None
        for key in list(self._select.get_map().values()):
            if isinstance(key.data, tuple):
                os.close(key.data[1]) if key.fileobj == key.data[1] else key.data[2].close()
        self._select.close()
        self._listening.close()
        link.close()
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        return given

    def _ended(self, key: selectors.SelectorKey) -> None:
        """A command has ended, or the program in front of it was killed: then so is the command."""
        pid, watch, link = key.data
        if link.fileno() < 0:  # both were seen at once
            return
        if key.fileobj is link:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        self._select.unregister(watch)
        self._select.unregister(link)
        os.close(watch)
        with link:
            _say(link, os.waitstatus_to_exitcode(status))


def _say(link: socket.socket, number: int) -> None:
    with contextlib.suppress(OSError):  # nobody waits for it any more
        link.sendall(f"{number}\n".encode())


def main() -> int:
    """Serve; in a copy, be ``tradewind``."""
    import importlib

    for name in _IMPORTED:
        importlib.import_module(name)
    from numba.core.registry import cpu_target

    from tradewind import plugins
    from tradewind.cli.app import _COMMANDS, _GROUPS, _command, run

    for name in ("", *_COMMANDS, *_GROUPS):
        _command(name)  # it is remembered
    for kind in plugins.KINDS:
        plugins.load_all(kind)
    # What numba reads of itself when it first calls a compiled function takes it a second.
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
    server = _Server(sys.argv[1])
    gc.freeze()
    print("ready", flush=True)
    given = server.serve()
    if given is None:
        return 0
    signal.signal(signal.SIGINT, signal.default_int_handler)
    words, folder, environ = given
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environ)
    sys.argv = ["tradewind", *words]
    code = 1
    try:
        exec(os.environ.pop("TRADEWIND_TESTS_BEFORE", ""), {})
        code = run()
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        traceback.print_exc()
    finally:
        # What else the interpreter does at its end is to give back memory, piece by piece.
        os._exit(code)


if __name__ == "__main__":
    sys.exit(main())
