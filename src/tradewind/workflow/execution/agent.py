"""Runs the tasks of one machine of a plan: the program that is started on the machine.

It is a file by itself, with nothing but the standard library, because the machine need not have Tradewind. It listens
on a TCP port, writes where into the run's folder, and takes JSON lines from one controller at a time, which proves that
it can read the run's secret. A controller that dies is waited for: tasks go on meanwhile, and how they ended is kept in
``end.json`` of the attempt's folder. Without a controller and without tasks it ends after some time.

``python agent.py RUN_FOLDER MACHINE_FOLDER HOST LINGER``: HOST is where it listens, LINGER is in seconds.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import hmac
import json
import os
import resource
import secrets
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Document = dict[str, Any]

BEAT_SECONDS = 1.0
GRACE_SECONDS = 2.0
NO_FOLDER = 78
"""The exit code that says: this machine does not see the run's folder."""


class Attempt:
    """A task that runs.

    Args:
        order: The controller's order.
        folder: The attempt's folder.
    """

    def __init__(self, order: Document, folder: Path) -> None:
        self.order = order
        self.folder = folder
        self.key: str = order["key"]
        self.work = Path(order["work"])
        self.began = time.time()
        self.begun = time.monotonic()
        self.pid = 0
        self.kill_at = float("inf")
        self.stopped = False

    def start(self) -> None:
        """Start its process.

        Raises:
            OSError: It cannot be started.
        """
        for name in self.order["clears"]:  # of an attempt before: they would hide that this one writes nothing
            _remove(self.work / name)
        if self.order["argv"] is None:
            self.pid = self._sleep(self.begun + self.order["seconds"])
            return
        work = self._isolate() if self.order["isolated"] else self.work
        for name in self.order["outputs"]:
            (work / name).parent.mkdir(parents=True, exist_ok=True)
        environment = {**os.environ, **self.order["env"]}
        with (self.folder / "stdout").open("wb") as out, (self.folder / "stderr").open("wb") as err:
            process = subprocess.Popen(
                self.order["argv"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=work,
                env=environment,
                start_new_session=True,
            )
        self.pid = process.pid
        process.returncode = 0  # wait4 reaps it, which tells what it used: the object is to leave it alone

    def _sleep(self, until: float) -> int:
        """A process that does nothing for as long as the task would take."""
        pid = os.fork()
        if pid:
            return pid
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                signal.signal(number, signal.SIG_DFL)
            os.setsid()
            os.closerange(3, 1 << 16)  # or the controller would not see when the agent dies
            for name in self.order["outputs"]:
                (self.work / name).parent.mkdir(parents=True, exist_ok=True)
                (self.work / name).touch()
            time.sleep(max(0.0, until - time.monotonic()))
            os._exit(0)
        finally:
            os._exit(1)

    def _isolate(self) -> Path:
        """A working folder of its own, with nothing but the task's inputs."""
        work = self.folder / "work"
        work.mkdir()
        for name in self.order["inputs"]:
            if not name.startswith("/"):
                (work / name).parent.mkdir(parents=True, exist_ok=True)
                (work / name).symlink_to(self.work / name)
        return work

    def kill(self, number: int) -> None:
        """Send a signal to all processes of the task."""
        self.stopped = True
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def result(self, status: int, used: Any) -> Document:
        """How it ended, as the controller wants to know it."""
        seconds = time.monotonic() - self.begun
        code = os.waitstatus_to_exitcode(status)
        reason = "" if code == 0 else f"it exited with code {code}" if code > 0 else f"signal {-code} ended it"
        if not reason:
            try:
                reason = self._deliver()
            except OSError as error:
                reason = f"its outputs cannot be kept: {error.strerror or error}"
        # A program starts with what this process has used at most: less than that cannot be told from it.
        floor = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {
            "outcome": "stopped" if self.stopped else "failed" if reason else "done",
            "reason": reason,
            "exit_code": code,
            "began": self.began,
            "seconds": seconds,
            "cpu_seconds": used.ru_utime + used.ru_stime,
            **({"peak_memory_bytes": used.ru_maxrss * 1024} if used.ru_maxrss > floor else {}),
        }

    def _deliver(self) -> str:
        """See that the outputs are there, and bring them to where others find them; what is wrong, in words."""
        isolated = self.order["isolated"] and self.order["argv"] is not None
        place = self.folder / "work" if isolated else self.work
        missing = [name for name in self.order["outputs"] if not (place / name).exists()]
        if missing:
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return f"it ended without writing its output {missing[0]}{more}"
        if isolated:
            for name in self.order["outputs"]:
                (self.work / name).parent.mkdir(parents=True, exist_ok=True)
                (place / name).replace(self.work / name)
            shutil.rmtree(place, ignore_errors=True)
        return ""


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def write_document(path: Path, document: Document) -> None:
    """Write a JSON document whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    part.write_text(json.dumps(document), encoding="utf-8")
    part.replace(path)


def proof(secret: str, challenge: str) -> str:
    """What only somebody who knows the secret can answer to a challenge."""
    return hmac.new(secret.encode(), challenge.encode(), hashlib.sha256).hexdigest()


class Agent:
    """Serves one machine.

    Args:
        run: The run's folder.
        machine: The folder of this machine's pilot in it.
        host: Where to listen.
        linger: Seconds without controller and tasks, after which it ends.
    """

    def __init__(self, run: Path, machine: Path, host: str, linger: float) -> None:
        self._run, self._machine, self._linger = run, machine, linger
        self._secret = (run / "secret").read_text(encoding="utf-8")
        self._attempts: dict[int, Attempt] = {}
        self._running: dict[str, Attempt] = {}
        self._ended: dict[str, Document] = {}
        self._listener = socket.create_server((host, 0))
        self._guests: dict[socket.socket, tuple[str, bytes]] = {}
        self._controller: socket.socket | None = None
        self._text = b""
        self._leaving = False
        self._alone_since = time.monotonic()
        self._wake, wake = os.pipe()
        for fd in (self._wake, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, signal.SIGTERM):
            signal.signal(number, lambda *_: None)
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)

    def serve(self) -> None:
        """Work until it is told to stop, or has been alone for too long."""
        name = socket.gethostname()
        places = [name, os.environ.get("SLURMD_NODENAME", ""), *_addresses(name)]
        address = {"host": name, "places": [place for place in dict.fromkeys(places) if place], "pid": os.getpid()}
        write_document(self._machine / "address.json", {**address, "port": self._listener.getsockname()[1]})
        beat = 0.0
        while not (self._leaving and not self._running):
            now = time.monotonic()
            if now >= beat:
                beat = now + BEAT_SECONDS
                if not self._regular(now):
                    break
            kills = [each.kill_at for each in self._running.values()]
            pause = max(0.0, min([beat, *kills]) - now)
            watched: list[Any] = [
                self._wake,
                self._listener,
                *self._guests,
                *([self._controller] if self._controller else []),
            ]
            for ready in select.select(watched, [], [], pause)[0]:
                self._look(ready)
            self._kill_stubborn()
        for attempt in self._running.values():
            attempt.kill(signal.SIGKILL)

    def _look(self, ready: Any) -> None:
        if ready is self._wake:
            numbers = os.read(self._wake, 4096)
            self._reap()
            if signal.SIGTERM in numbers:
                self._stop()
        elif ready is self._listener:
            guest, _ = self._listener.accept()
            guest.settimeout(5.0)
            challenge = secrets.token_hex(16)
            self._guests[guest] = (challenge, b"")
            _send(guest, {"challenge": challenge})
        elif ready in self._guests:
            self._let_in(ready)
        elif ready is self._controller:
            self._listen()

    def _let_in(self, guest: socket.socket) -> None:
        challenge, text = self._guests.pop(guest)
        with contextlib.suppress(OSError):
            text += guest.recv(4096)
            line, end, rest = text.partition(b"\n")
            if not end and text and len(text) < 4096:
                self._guests[guest] = (challenge, text)
                return
            if hmac.compare_digest(line.decode("ascii", "replace"), proof(self._secret, challenge)):
                guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._controller is not None:
                    self._controller.close()
                self._controller, self._text = guest, rest
                self._say({"event": "welcome"})
                return
        guest.close()

    def _regular(self, now: float) -> bool:
        """What is done once a second; False when it is time to go."""
        if self._controller is not None:
            self._say({"event": "beat"})
        if self._controller is not None or self._running:
            self._alone_since = now
        if (self._machine / "fenced").exists():
            return False  # the controller has given this machine up: its tasks run elsewhere
        return now - self._alone_since < self._linger

    def _say(self, document: Document) -> None:
        if self._controller is not None:
            try:
                _send(self._controller, {**document, "now": time.time()})
            except OSError:
                self._hang_up()

    def _hang_up(self) -> None:
        if self._controller is not None:
            self._controller.close()
            self._controller = None

    def _listen(self) -> None:
        assert self._controller is not None
        try:
            piece = self._controller.recv(1 << 20)
        except OSError:
            piece = b""
        if not piece:
            self._hang_up()
            return
        *lines, self._text = (self._text + piece).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if order["op"] == "start":
                self._start(order)
            elif order["op"] == "stop":
                self._stop()

    def _start(self, order: Document) -> None:
        key, folder = order["key"], self._run / order["folder"]
        if self._leaving or key in self._running:
            return
        if key in self._ended:
            self._say({"event": "ended", "key": key, "result": self._ended[key]})
            return
        attempt = Attempt(order, folder)
        try:
            folder.mkdir(parents=True)
            attempt.start()
        except OSError as error:
            place = f": {error.filename}" if error.filename else ""
            reason = f"it cannot be started: {error.strerror or error}{place}"
            lost = isinstance(error, FileExistsError) and error.filename == str(folder)
            self._tell(attempt, {"outcome": "lost" if lost else "failed", "reason": reason, "seconds": 0.0})
        else:
            self._attempts[attempt.pid] = self._running[key] = attempt

    def _tell(self, attempt: Attempt, result: Document) -> None:
        result = {"began": attempt.began, **result}
        self._ended[attempt.key] = result
        # The controller first: what waits for this task can begin while the file is written.
        self._say({"event": "ended", "key": attempt.key, "result": result})
        if result["outcome"] in ("done", "failed"):
            with contextlib.suppress(OSError):
                write_document(attempt.folder / "end.json", result)

    def _reap(self) -> None:
        while True:
            try:
                pid, status, used = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            attempt = self._attempts.pop(pid, None)
            if attempt is not None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)  # what it left in the background
                del self._running[attempt.key]
                self._tell(attempt, attempt.result(status, used))

    def _stop(self) -> None:
        self._leaving = True
        for attempt in self._running.values():
            attempt.kill(signal.SIGTERM)
            attempt.kill_at = min(attempt.kill_at, time.monotonic() + GRACE_SECONDS)

    def _kill_stubborn(self) -> None:
        for attempt in self._running.values():
            if time.monotonic() >= attempt.kill_at:
                attempt.kill(signal.SIGKILL)
                attempt.kill_at = float("inf")


def _send(to: socket.socket, document: Document) -> None:
    to.sendall(json.dumps(document).encode() + b"\n")


def _addresses(name: str) -> list[str]:
    """The addresses of this machine that others may reach it by."""
    with contextlib.suppress(OSError):
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)]
    return []


def main(words: list[str]) -> int:
    """Serve one machine."""
    run, machine, host, linger = Path(words[0]), Path(words[1]), words[2], float(words[3])
    if not (run / "secret").is_file() or not machine.is_dir():
        sys.stderr.write(f"{socket.gethostname()} does not see the folder {run}\n")
        return NO_FOLDER
    agent = Agent(run, machine, host, linger)
    gc.freeze()  # children that only sleep share all that is there now
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
