"""A machine of the ssh runner, with a session that is opened again when it is lost."""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path

from tradewind.deployer.bundle import Bundle, unpack
from tradewind.deployer.runner.ssh.channel import LostError, SshChannel, script, single_word
from tradewind.deployer.ssh_connection import SshConnection, SshTarget
from tradewind.errors import DeployError, MissingProgramError, TradewindError, UnreachableError

_NEEDED = frozenset({"tar", "base64", "mkfifo", "find"})
_SMALL_KIB = 4096
_FRESH_SECONDS = 0.2
_POLL_SECONDS = 3.0
_TOGETHER = 50
_log = logging.getLogger("tradewind.deployer")


@cache
def _script() -> tuple[bytes, str]:
    text = script()
    return text, hashlib.sha256(text).hexdigest()[:12]


class RemoteMachine:
    """One machine, for all runs and threads of a runner.

    Args:
        target: The address and login of the machine.
        folder: The folder of the runs there.
        connect_seconds: Seconds that opening the connection may take.
        patience: Seconds that an answer may take.
        news: Called when a run has ended there, or the session has.
    """

    def __init__(
        self, target: SshTarget, folder: str, *, connect_seconds: float, patience: float, news: Callable[[], None]
    ) -> None:
        self.target = target
        self.link = SshConnection(target, connect_seconds=connect_seconds)
        self._folder = folder
        self._patience = patience
        self._connect_seconds = connect_seconds
        self._news = news
        self._channel: SshChannel | None = None
        self._requesting = threading.Lock()
        self._sending = threading.Lock()
        self._state = threading.Lock()
        self._asking: threading.Thread | None = None
        self._answers: dict[str, tuple[float, str]] = {}
        self._to_forget: list[tuple[tuple[str, ...], Callable[[], None]]] = []
        self._forgetting: threading.Thread | None = None
        self.used = time.monotonic()
        self.ended: set[str] = set()
        self.forgotten: set[str] = set()

    def channel(self) -> SshChannel:
        """The session, opened if there is none; to be called with the lock of the requests held.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
            MissingProgramError: A program that is needed there is missing.
        """
        if self._channel is not None and self._channel.open:
            return self._channel
        text, digest = _script()
        seconds = self._connect_seconds + self._patience
        for _ in range(2):
            try:
                found = SshChannel(self.link, self._folder, digest, self._on_event, seconds)
                break
            except FileNotFoundError:
                self.link.put(text, f"{self._folder}/far-{digest}.sh", timeout=seconds)
        else:
            raise UnreachableError(f"{self.target.host}: the script that was sent is not there")
        missing = sorted(_NEEDED - found.tools)
        if missing:
            found.close()
            raise MissingProgramError(
                f"{self.target.host} has no {', '.join(missing)}", hint="install coreutils, findutils and tar there"
            )
        self._channel = found
        return found

    def _on_event(self, words: str | None) -> None:
        if words is not None:
            name, _, result = words.partition(" ")
            with self._state:
                self.ended.add(name)
                if result:  # with it no request is needed
                    self._answers[name] = (time.monotonic(), f"result {result}")
        self._news()

    def ask(self, *words: str, seconds: float | None = None) -> list[str]:
        """Send a request that may be repeated; a session that was lost is opened again once.

        Args:
            words: The request and its arguments.
            seconds: Seconds that the answer may take; `patience` without it.

        Returns:
            The lines of the answer.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
        """
        seconds = self._patience if seconds is None else seconds
        self.used = time.monotonic()
        if not self._requesting.acquire(timeout=seconds + self._connect_seconds):
            raise UnreachableError(f"{self.target.host} does not answer")
        try:
            fresh = self._channel is None or not self._channel.open
            began = time.monotonic()
            try:
                return self.channel().request(*words, seconds=seconds)
            except LostError:
                if fresh or time.monotonic() - began > seconds / 2:
                    raise
            return self.channel().request(*words, seconds=seconds)
        finally:
            self._requesting.release()

    @property
    def far_folder(self) -> str:
        """The absolute path of the folder there."""
        with self._requesting:
            return self.channel().folder

    def start(self, words: Sequence[str], bundle: Bundle | None, inputs: Bundle | None) -> None:
        """Make the far side start a run, or unpack its files, and send the archives that it needs for that.

        Args:
            words: The request and its arguments; the second word is the run's name there.
            bundle: The archive of the working folder.
            inputs: The archive of the inputs.

        Raises:
            UnreachableError: The machine does not answer.
            CredentialsError: It does not let us in.
            DeployError: The far side cannot start it: the disk is full, ...
        """
        self.forgotten.discard(words[1])
        for _ in range(4):
            answer = single_word(self.ask(*words))
            if answer in ("started", "starting"):
                self._seed(words[1], "waiting" if answer == "starting" else "")
                return
            if answer == "need bundle" and bundle is not None:
                self._send(bundle, f"{self._folder}/bundles/{bundle.digest}.tar", folder=False)
            elif answer == "need inputs" and inputs is not None:
                self._send(inputs, f"{self._folder}/inputs/{inputs.digest}", folder=True)
            else:
                break
        trouble = self._channel.trouble if self._channel is not None else ""
        if "No space left" in trouble or "I/O error" in trouble or "quota" in trouble:
            raise DeployError(f"the disk of {self.target.host} is full", hint="make room there")
        raise DeployError(f"{self.target.host} could not start the run: {trouble or answer or 'no reason given'}")

    def _seed(self, name: str, words: str) -> None:
        """Set the answer about a run that was started in this moment, so that no request is needed."""
        with self._state:
            if words and name not in self.ended:
                self._answers[name] = (time.monotonic(), words)

    def _send(self, bundle: Bundle, place: str, *, folder: bool) -> None:
        with self._sending:  # several runs may want the same files
            test = ["test", "-d" if folder else "-f", place]
            if self.link.run(test, check=False).code == 0:
                return
            if folder:
                self.link.put_folder(bundle.path, place)
            else:
                self.link.put(bundle.path, place)

    def poll(self, names: Sequence[str]) -> threading.Thread | None:
        """Begin to query the states of some runs, unless they are known or queried already.

        Returns:
            The thread of the query, which ends with the answer; None where none is needed.
        """
        with self._state:
            now = time.monotonic()
            unknown = False
            for name in names:
                asked, words = self._answers.get(name, (float("-inf"), ""))
                if words.startswith("result "):  # it stays as it is
                    self.ended.discard(name)
                else:
                    unknown |= now - asked >= _FRESH_SECONDS or name in self.ended
            if not unknown:
                return None
            if self._asking is None or not self._asking.is_alive():
                self._asking = threading.Thread(
                    target=self._ask_where, args=(list(names),), name="tradewind-ssh-poll", daemon=True
                )
                self._asking.start()
            return self._asking

    def _ask_where(self, names: list[str]) -> None:
        try:
            lines = self.ask("poll", *names, seconds=max(_POLL_SECONDS, self._patience))
        except Exception:
            return  # unknown counts as alive
        now = time.monotonic()
        with self._state:
            for line in lines:
                name, _, words = line.partition(" ")
                self._answers[name] = (now, words)
                if words.startswith("result "):
                    self.ended.discard(name)

    def answer(self, name: str) -> tuple[float, str] | None:
        """The last answer about a run, with its age in seconds before it; None without one."""
        with self._state:
            found = self._answers.get(name)
        return None if found is None else (time.monotonic() - found[0], found[1])

    def drop(self, name: str) -> None:
        """Forget the answers about a run."""
        with self._state:
            self._answers.pop(name, None)
            self.ended.discard(name)

    def forget(self, names: Sequence[str], then: Callable[[], None]) -> None:
        """Have a run removed there, in a thread; where that fails, the far side removes it when it expires.

        Args:
            names: The names of its commands there.
            then: Called when the removal was done or has failed.
        """
        with self._state:
            self._to_forget.append((tuple(names), then))
            self.forgotten.update(names)
            if self._forgetting is None or not self._forgetting.is_alive():
                self._forgetting = threading.Thread(target=self._forget, name="tradewind-ssh-forget", daemon=True)
                self._forgetting.start()
        for name in names:
            self.drop(name)

    def _forget(self) -> None:
        while True:
            with self._state:
                now, self._to_forget = self._to_forget[:_TOGETHER], self._to_forget[_TOGETHER:]
                if not now:
                    self._forgetting = None
                    return
            try:
                self.ask("forget", *(name for names, _ in now for name in names))
            except TradewindError as error:
                _log.info("%s: %s", self.target.host, error)
            for _, then in now:
                then()

    @property
    def talks(self) -> bool:
        """True while the session is open, in which the far side reports the ends of runs."""
        return self._channel is not None and self._channel.open

    def bring(self, name: str, patterns: Sequence[str], folder: Path, limit_bytes: int) -> bool:
        """Bring the files of a command into a folder; False when there are none.

        Args:
            name: The name of the command there.
            patterns: Patterns for ``find -path`` of the files that are kept.
            folder: The folder on this machine.
            limit_bytes: The most bytes that the files may have.

        Raises:
            UnreachableError: The machine does not answer.
            DeployError: The files are too large, or cannot be written here.
        """
        lines = self.ask("collect", name, str(_SMALL_KIB), *patterns, seconds=max(60.0, self._patience))
        if not lines or lines[0] == "none":
            return False
        if lines[0] == "small":
            content = base64.b64decode("".join(lines[1:]))
            unpack(io.BytesIO(content), folder, limit_bytes=limit_bytes, lenient=True)
            return True
        _, digest = _script()
        argv = ["sh", f"{self._folder}/far-{digest}.sh", self._folder, "archive", name]
        self.link.receive(argv, lambda stream: unpack(stream, folder, limit_bytes=limit_bytes, lenient=True))
        return True

    def close(self) -> None:
        """End the session and the connection; runs are not touched."""
        forgetting = self._forgetting
        if forgetting is not None:
            forgetting.join(self._patience)
        with self._requesting:
            if self._channel is not None:
                self._channel.close()
                self._channel = None
        self.link.close()
