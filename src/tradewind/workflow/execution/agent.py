"""Runs the tasks of one machine of a plan: the program that is started on the machine.

It is sent there with `attempt` and with what watches jobs (`tradewind.deployer.runner.warden.jobs`). All of that has
nothing but the standard library, because the machine need not have Tradewind. It listens on a TCP port, writes where
into the run's folder, and takes JSON lines from one controller at a time, which proves that it can read the run's
secret. A controller that dies is waited for: tasks go on meanwhile, and how they ended is kept in ``end.json`` of the
attempt's folder. Without a controller and without tasks it ends after some time.

An order may name attempts that run here: the task is then begun the moment all of them have ended well, without asking.

``python agent.py RUN_FOLDER MACHINE_FOLDER HOST LINGER``: HOST is where it listens, LINGER is in seconds.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import hashlib
import hmac
import json
import os
import secrets
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

if not __package__:  # alone on a machine, where the folder of a program that is started with -I is not looked into
    sys.path.insert(0, str(Path(__file__).resolve().parent))

from tradewind.deployer.runner.warden.files import StartRefused
from tradewind.deployer.runner.warden.jobs import JobWatcher, WatchedJob
from tradewind.workflow.execution.attempt import TASK_TAG, Attempt, Document

BEAT_SECONDS = 1.0
GRACE_SECONDS = 2.0
LOOK_SECONDS = 0.5
"""Between two looks at what runs: the warden of its own machine, where there is one, looks more often."""
FIRST_SECONDS = 30.0
"""Least seconds to wait for the first call, however short it lingers after one."""
DOUBT_SECONDS = 0.5
"""A signal from outside that ends a task may be the first word of the machine being taken away."""
_TAKEN = (-signal.SIGTERM, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGKILL)
"""Exit codes of a program ended by such a signal, or of a shell whose program was."""
GUEST_SECONDS = 5.0
GUESTS = 32
"""Seconds and number of unproven connections that are kept: without limits, anybody could use them up."""
NO_FOLDER = 78
"""The exit code that says: this machine does not see the run's folder."""


def write_document(path: Path, document: Document) -> None:
    """Write a JSON document whole, or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(json.dumps(document), encoding="utf-8")
        part.replace(path)
    except OSError:  # as on a full disk, which keeps an empty file
        with contextlib.suppress(OSError):
            part.unlink()
        raise


def proof(secret: str, challenge: str) -> str:
    """Answer to a challenge that only a holder of the secret can give."""
    return hmac.new(secret.encode(), challenge.encode(), hashlib.sha256).hexdigest()


class Agent(JobWatcher):
    """Runs the tasks of one machine, by the orders of a controller.

    Args:
        run: The run's folder.
        machine: The folder of this machine's pilot in it.
        host: Address to listen on.
        linger: Seconds without controller and tasks, after which it ends, once a controller has called.
    """

    def __init__(self, run: Path, machine: Path, host: str, linger: float) -> None:
        super().__init__(TASK_TAG, LOOK_SECONDS)
        self._run, self._machine, self._linger = run, machine, linger
        self._secret = (run / "secret").read_text(encoding="utf-8")
        self._running: dict[str, Attempt] = {}
        self._armed: dict[str, Attempt] = {}
        self._ended: dict[str, Document] = {}
        # Attempts ended by a signal from outside: their result, and the time at which that is reported as a failure.
        self._doubtful: dict[str, tuple[Attempt, Document, float]] = {}
        self._listener = socket.create_server((host, 0))
        self._guests: dict[socket.socket, tuple[str, bytes, float]] = {}
        self._controller: socket.socket | None = None
        self._text = b""
        self._leaving = False
        self._alone_since = time.monotonic()
        self._alone_limit = max(linger, FIRST_SECONDS)

    def serve(self) -> None:
        """Work until a controller says stop, or there was none and no task for too long."""
        name = socket.gethostname()
        # Asking for addresses takes long where nobody answers, and who is on this machine needs none.
        known = [] if self._listener.getsockname()[0] == "127.0.0.1" else _addresses(name)
        places = [name, os.environ.get("SLURMD_NODENAME", ""), *known]
        address = {"host": name, "places": [place for place in dict.fromkeys(places) if place], "pid": os.getpid()}
        write_document(self._machine / "address.json", {**address, "port": self._listener.getsockname()[1]})
        beat = 0.0
        while not (self._leaving and not self._running):
            now = time.monotonic()
            if now >= beat:
                beat = now + BEAT_SECONDS
                if not self._regular(now):
                    break
            moments = [until for _, _, until in self._doubtful.values()]
            pause = max(0.0, min([beat, self._next_moment(), *moments]) - now)
            watched: list[Any] = [
                self.wake,
                self._listener,
                *self._guests,
                *([self._controller] if self._controller else []),
            ]
            for ready in select.select(watched, [], [], pause)[0]:
                self._look(ready)
            self._look_after()
            self._doubt()
        self._end()

    def _end(self) -> None:
        """End what still runs, and leave word that nothing does: no other machine may do the same work before."""
        self._leaving = True
        self._doubt()
        self._launcher.dismiss()
        for job in self.jobs.values():
            self._end_job(job, "stopped", "", 0.0)
            job.kill_at = 0.0
        until = time.monotonic() + GRACE_SECONDS
        while self._running and time.monotonic() < until:
            self._look_after()
            self._reap()
            time.sleep(0.01)
        if not self._running:
            with contextlib.suppress(OSError):  # its folder is not there any more
                write_document(self._machine / "left.json", {"at": time.time()})

    def _look(self, ready: Any) -> None:
        if ready is self.wake:
            # What has ended meanwhile may have been ended by the same signal: that is not reported at once.
            if signal.SIGTERM in self._take_signals():
                self._stop()
        elif ready is self._listener:
            self._welcome()
        elif ready in self._guests:
            self._let_in(ready)
        elif ready is self._controller:
            self._listen()

    def _welcome(self) -> None:
        """Challenge whoever calls; he may be gone already."""
        with contextlib.suppress(OSError):
            guest, _ = self._listener.accept()
            if len(self._guests) >= GUESTS:
                self._show_out(next(iter(self._guests)))
            challenge = secrets.token_hex(16)
            self._guests[guest] = (challenge, b"", time.monotonic())
            try:
                guest.settimeout(GUEST_SECONDS)
                _send(guest, {"challenge": challenge})
            except OSError:
                self._show_out(guest)

    def _show_out(self, guest: socket.socket) -> None:
        del self._guests[guest]
        guest.close()

    def _let_in(self, guest: socket.socket) -> None:
        challenge, text, since = self._guests.pop(guest)
        with contextlib.suppress(OSError):
            text += guest.recv(4096)
            line, end, rest = text.partition(b"\n")
            if not end and text and len(text) < 4096:
                self._guests[guest] = (challenge, text, since)
                return
            if hmac.compare_digest(line, proof(self._secret, challenge).encode()):
                guest.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._controller is not None:
                    self._controller.close()
                self._controller, self._text = guest, rest
                self._alone_limit = self._linger
                self._say({"event": "welcome", "host": socket.gethostname()})
                return
        guest.close()

    def _regular(self, now: float) -> bool:
        """Do the chores of each second; False when it is time to end."""
        if self._controller is not None:
            self._say({"event": "beat"})
        for guest in [guest for guest, (_, _, since) in self._guests.items() if now - since > GUEST_SECONDS]:
            self._show_out(guest)
        if self._controller is not None or self._running or self._doubtful:
            self._alone_since = now
        if (self._machine / "fenced").exists() or not self._machine.is_dir():
            return False  # a controller has given this machine up, or has begun anew: its tasks run elsewhere
        return now - self._alone_since <= self._alone_limit  # no time is none where it is not alone

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
        key = order["key"]
        if self._leaving or key in self._running or key in self._doubtful:
            return
        if key in self._ended:
            self._say({"event": "ended", "key": key, "result": self._ended[key]})
            return
        after = {each for each in order["after"] if self._ended.get(each, {}).get("outcome") != "done"}
        if not order["work"]:  # this machine does not see the controller's folder: the files are in its own
            order["work"] = order["env"]["TRADEWIND_FILES"] = str(self._run / "files")
        attempt = self._armed.pop(key, None) or Attempt(order, self._run / order["folder"])
        if not after:
            if (wrong := self._go(attempt)) is not None:
                self._tell(attempt, wrong)
        elif after <= self._running.keys():
            attempt.after = after
            self._armed[key] = attempt
        # Else one of them has ended otherwise, or nobody here knows of it: the controller is to say more.
        self._stand_by()

    def _stand_by(self) -> None:
        """Have a process for each attempt that waits and will only sleep: others are started faster without."""
        with contextlib.suppress(OSError):  # they are made when it is time
            self._launcher.stand_by(sum(each.order["argv"] is None for each in self._armed.values()))

    def _go(self, attempt: Attempt) -> Document | None:
        """Begin an attempt; returns its result if it cannot be begun."""
        taken = {place for other in self._running.values() for place in other.gpus}
        wanted = attempt.order.get("gpus") or 0
        attempt.gpus = [place for place in range(len(taken) + wanted) if place not in taken][:wanted]
        try:
            self._start_job(attempt.prepare(), os.sched_getaffinity(0))
        except (OSError, StartRefused) as error:
            file, number = _trouble(error, attempt)
            place = f": {file}" if file else ""
            reason = f"it cannot be started: {os.strerror(number)}{place}"
            # Its folder is there: somebody has begun this attempt before, and nobody knows what became of it.
            lost = isinstance(error, FileExistsError) and file == str(attempt.folder)
            outcome = "lost" if lost else "failed"
            return {"outcome": outcome, "reason": reason, "began": attempt.began, "seconds": 0.0}
        self._running[attempt.key] = attempt
        return None

    def _pull(self, ended: str, *, well: bool) -> list[tuple[Attempt, Document]]:
        """Begin what waits for an attempt that has ended well, and forget it if it has not; what cannot be begun."""
        wrong = []
        for attempt in [each for each in self._armed.values() if ended in each.after]:
            attempt.after.discard(ended)
            if not well or not attempt.after:
                del self._armed[attempt.key]
                if well and (result := self._go(attempt)) is not None:
                    wrong.append((attempt, result))
        self._stand_by()
        return wrong

    def _tell(self, attempt: Attempt, result: Document) -> None:
        self._ended[attempt.key] = result
        # The controller first, and then what waits for it here: what waits elsewhere can begin while this is done.
        self._say({"event": "ended", "key": attempt.key, "result": result})
        wrong = self._pull(attempt.key, well=result["outcome"] == "done")
        if result["outcome"] in ("done", "failed"):
            with contextlib.suppress(OSError):
                write_document(attempt.folder / "end.json", result)
        for other, reason in wrong:
            self._tell(other, reason)

    def _settle(self, job: WatchedJob) -> None:
        attempt = self._running.pop(job.run_id)
        result = attempt.result(job)
        if result["outcome"] == "failed" and result["exit_code"] in _TAKEN:
            self._doubtful[attempt.key] = (attempt, result, time.monotonic() + DOUBT_SECONDS)
        else:
            self._tell(attempt, result)

    def _doubt(self) -> None:
        """Tell what was ended by a signal from outside: as stopped where the machine goes, else as failed, later."""
        for key, (attempt, result, until) in list(self._doubtful.items()):
            if self._leaving or time.monotonic() >= until:
                del self._doubtful[key]
                self._tell(attempt, {**result, "outcome": "stopped"} if self._leaving else result)

    def _stop(self) -> None:
        self._leaving = True
        self._doubt()
        self._armed.clear()
        self._stand_by()
        for job in self.jobs.values():
            self._end_job(job, "stopped", "", GRACE_SECONDS)


def _trouble(error: OSError | StartRefused, attempt: Attempt) -> tuple[str, int]:
    """The file or the program that an attempt cannot be started with, and the number of the error."""
    if isinstance(error, OSError):
        return str(error.filename or ""), error.errno or errno.EIO
    argv = attempt.order["argv"]
    return (argv[0] if argv and error.kind == "missing" else ""), error.number


def _send(to: socket.socket, document: Document) -> None:
    to.sendall(json.dumps(document).encode() + b"\n")


def _addresses(name: str) -> list[str]:
    """The addresses of this machine that others may reach it by."""
    with contextlib.suppress(OSError):
        return [str(found[4][0]) for found in socket.getaddrinfo(name, None, socket.AF_INET)]
    return []


def relay(machine: Path) -> int:
    """Lead standard input and output to the agent of this machine, which may be about to begin."""
    until = time.monotonic() + FIRST_SECONDS
    while not (machine / "address.json").exists():
        if time.monotonic() > until:
            return 1
        time.sleep(0.02)
    port = int(json.loads((machine / "address.json").read_text(encoding="utf-8"))["port"])
    with socket.create_connection(("127.0.0.1", port)) as agent:
        agent.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        while True:
            watched: list[Any] = [0, agent]
            ready = select.select(watched, [], [])[0]
            if 0 in ready:
                if not (piece := os.read(0, 1 << 16)):
                    return 0
                agent.sendall(piece)
            if agent in ready:
                piece = agent.recv(1 << 16)
                if not piece:
                    return 0
                while piece:
                    piece = piece[os.write(1, piece) :]


def _make_room(run: Path, machine: Path) -> None:
    """Make the run's folder on a machine that does not see the controller's, with the secret that came along."""
    for place in (run / "files", run / "tasks", machine):
        place.mkdir(parents=True, exist_ok=True)
    secret = run / "secret"
    secret.touch(mode=0o600)
    secret.write_bytes((run.parent / "secret").read_bytes())


def main(words: list[str]) -> int:
    """Serve one machine; with ``relay FOLDER`` lead to who does."""
    if words[0] == "relay":
        return relay(Path(words[1]))
    run, machine, host, linger = Path(words[0]).absolute(), Path(words[1]).absolute(), words[2], float(words[3])
    if "apart" in words[4:]:
        _make_room(run, machine)
    if not (run / "secret").is_file() or not machine.is_dir():
        sys.stderr.write(f"{socket.gethostname()} does not see the folder {run}\n")
        return NO_FOLDER
    files = Path("/proc/self/fd")  # not every machine has /dev/fd
    for file in (
        files if files.is_dir() else Path("/dev/fd")
    ).iterdir():  # whoever started it may wait for their end: no task is to keep them
        if int(file.name) > 2:
            with contextlib.suppress(OSError):
                os.set_inheritable(int(file.name), False)
    agent = Agent(run, machine, host, linger)
    gc.freeze()  # children that only sleep share all that is there now
    agent.serve()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
