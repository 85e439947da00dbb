"""Brings a run's inputs into its folder, and keeps its outputs."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import os
import shutil
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import quote, unquote, urlsplit

from tradewind.deployer.environment import OUTPUTS, check_workdir
from tradewind.deployer.storage import open_storage
from tradewind.deployer.storage.base import SCHEMES, StorageAddress
from tradewind.errors import DeployError, PrerequisiteError
from tradewind.problem import RunRequest
from tradewind.utils.paths import expand

INPUTS = "inputs"
_PIECE = 1 << 20
_SILENCE_SECONDS = 60.0
_LOOKS = 10


@dataclass(frozen=True, slots=True)
class RunInput:
    """One input, as the YAML writes it: ``place``, or ``place#sha256=...&size=...&name=...``.

    Attributes:
        place: A path relative to the working folder, or an address: ``http(s)://`` or one that `places` knows.
        name: The name that it gets below ``inputs/``.
        sha256: What the content must hash to, or empty.
        size: Bytes that it must have, or None.
    """

    place: str
    name: str
    sha256: str = ""
    size: int | None = None
    scheme: str = field(default="")

    @classmethod
    def parse(cls, text: str) -> RunInput:
        """Read an input.

        Raises:
            DeployError: It is not one.
        """
        place, _, options = text.partition("#")
        given = dict(part.partition("=")[::2] for part in options.split("&") if part)
        unknown = set(given) - {"sha256", "size", "name"}
        scheme = place.partition("://")[0].lower() if "://" in place else ""
        if scheme in ("http", "https"):
            place = _web_address(place)
        if unknown or scheme not in ("", "http", "https", *SCHEMES) or not given.get("size", "0").isdigit():
            schemes = ", ".join(("http(s)", *SCHEMES))
            raise DeployError(
                f"input {text!r} is not understood",
                hint=f"write a path or an address ({schemes}), then #sha256=...&size=...&name=... where wanted",
                retryable=False,
            )
        if scheme in SCHEMES:
            StorageAddress.parse(place)
        path = unquote(urlsplit(place).path) if scheme else place
        name = given.get("name") or PurePosixPath(path.rstrip("/")).name
        if not name or name in (".", "..") or "/" in name:
            raise DeployError(f"input {text!r} has no usable name", hint="add #name=...", retryable=False)
        size = int(given["size"]) if "size" in given else None
        return cls(path if scheme == "file" else place, name, given.get("sha256", "").lower(), size, scheme)


def _web_address(place: str) -> str:
    """An address of the web, with what must not stand in one quoted.

    Raises:
        DeployError: It is none, or has a user in it, perhaps with a password: the message does not repeat it.
    """
    try:
        parts = urlsplit(place)
        known = parts.hostname and (parts.port is None or parts.port)
    except ValueError:  # a port that is no number, brackets that are not closed
        known = None
    if not known:
        raise DeployError(f"input {place!r} is no address", hint="write http(s)://HOST/PATH", retryable=False)
    if "@" in parts.netloc:
        raise DeployError(
            f"an input of {parts.hostname} has a user or password in its address",
            hint="write webdavs:// with both under deploy.places, or fetch it in the job with a secret",
            retryable=False,
        )
    return quote(place, safe="%/:?&=+,;~[]!$'()*@")


def stage_in(request: RunRequest) -> None:
    """Bring all inputs into ``inputs/`` of the run's folder; what is there already is left alone.

    Files and folders of this machine are linked, not copied. A download appears under its name only when it is
    whole and its size and checksum are right.

    Raises:
        PrerequisiteError: An input is not there, or not what it should be.
        DeployError: It cannot be brought now; ``retryable`` is true.
    """
    for text in request.inputs:
        with _needed():
            _bring(RunInput.parse(text), request)


def check_inputs(request: RunRequest) -> None:
    """See that the working folder and the inputs that are files of this machine are there; nothing is brought or read.

    Raises:
        PrerequisiteError: One is not.
    """
    check_workdir(request.workdir)
    for text in request.inputs:
        with _needed():
            wanted = RunInput.parse(text)
        if wanted.scheme in ("", "file"):
            _here(wanted, request)


@contextlib.contextmanager
def _needed() -> Iterator[None]:
    """Raise an error that stays as a `PrerequisiteError`: it keeps every run of the job from beginning."""
    try:
        yield
    except DeployError as error:
        if type(error) is DeployError and not error.retryable:
            raise PrerequisiteError(error.message, hint=error.hint) from error
        raise


def _bring(wanted: RunInput, request: RunRequest) -> None:
    target = request.folder / INPUTS / wanted.name
    if target.is_symlink() or target.exists():
        return
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        if wanted.scheme in ("http", "https"):
            _download(wanted, target)
        elif wanted.scheme in SCHEMES and wanted.scheme != "file":
            _fetch(wanted, target, request)
        else:
            source = _here(wanted, request)
            _check_file(wanted, source, retryable=False)
            target.symlink_to(source.resolve(), target_is_directory=source.is_dir())
    except OSError as error:
        raise DeployError(f"input {wanted.place}: {error.strerror or error}") from error


def _here(wanted: RunInput, request: RunRequest) -> Path:
    """The file or folder of this machine that an input is."""
    source = request.workdir / expand(wanted.place)
    if not source.exists():
        raise PrerequisiteError(f"input {source} does not exist")
    return source


def _fetch(wanted: RunInput, target: Path, request: RunRequest) -> None:
    """Bring a file or folder from a server; it appears under its name when it is whole and right."""
    part = target.with_name(target.name + ".part")
    _remove(part)  # what a killed process left there
    place = open_storage(wanted.place, request.places)
    try:
        try:
            place.fetch(part)
        except DeployError as error:
            error.message = f"input {error.message}"  # its class stays: it says whose fault it is
            raise
        _check_file(wanted, part, retryable=True)
        part.rename(target)
    finally:
        place.close()
        _remove(part)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _download(wanted: RunInput, target: Path) -> None:
    part = target.with_name(target.name + ".part")
    digest, size = hashlib.sha256(), 0
    try:
        with urllib.request.urlopen(wanted.place, timeout=_SILENCE_SECONDS) as answer, part.open("wb") as file:  # noqa: S310  (Input.parse admits http and https only)
            promised = answer.headers.get("Content-Length")
            while piece := answer.read(_PIECE):
                file.write(piece)
                digest.update(piece)
                size += len(piece)
                if wanted.size is not None and size > wanted.size:
                    break
        if promised is not None and size < int(promised):
            raise DeployError(f"input {wanted.place}: only {size} of {promised} bytes came")
        _check(wanted, size, digest.hexdigest(), retryable=True)
        part.replace(target)
    except urllib.error.HTTPError as error:
        error.close()
        fault = error.code >= 500 or error.code in (408, 429)
        raise DeployError(f"input {wanted.place}: HTTP {error.code} {error.reason}", retryable=fault) from error
    except urllib.error.URLError as error:
        raise DeployError(f"input {wanted.place}: {error.reason}") from error
    except http.client.IncompleteRead as error:
        raise DeployError(f"input {wanted.place}: the connection was cut") from error
    except (http.client.HTTPException, ValueError) as error:
        raise DeployError(f"input {wanted.place}: {error}", retryable=False) from error
    finally:
        part.unlink(missing_ok=True)


def _check_file(wanted: RunInput, path: Path, *, retryable: bool) -> None:
    if not wanted.sha256 and wanted.size is None:
        return
    if not path.is_file():
        raise DeployError(f"input {wanted.place} is a folder: it has no size or checksum", retryable=False)
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            digest.update(piece)
    _check(wanted, path.stat().st_size, digest.hexdigest(), retryable=retryable)


def _check(wanted: RunInput, size: int, digest: str, *, retryable: bool) -> None:
    if wanted.size is not None and size != wanted.size:
        raise DeployError(f"input {wanted.place} has {size} bytes, not {wanted.size}", retryable=retryable)
    if wanted.sha256 and digest != wanted.sha256:
        raise DeployError(f"input {wanted.place} has the wrong checksum {digest}", retryable=retryable)


def stage_out(request: RunRequest) -> list[Path]:
    """Keep the outputs: copy what the patterns match below the working folder into ``outputs/`` of the run's folder.

    Patterns start at the working folder; what the job itself put into ``outputs/`` is kept anyway. Nothing outside of
    the working folder is ever copied: not through ``..``, not through a symbolic link. What vanishes meanwhile, as
    temporary files do, is left out.

    Returns:
        The copies.

    Raises:
        DeployError: A file cannot be copied; ``retryable`` is false where it is not permitted.
    """
    kept = []
    try:
        root, own = request.workdir.resolve(), request.folder.resolve()
        outputs = own / OUTPUTS
        for pattern in request.outputs:
            for source in _matches(root, pattern):
                if source.is_relative_to(own):
                    continue
                target = outputs / source.relative_to(root)
                target.parent.mkdir(parents=True, exist_ok=True)
                if not target.parent.resolve().is_relative_to(outputs):
                    raise DeployError(f"output {source} would be kept outside of {outputs}", retryable=False)
                target.unlink(missing_ok=True)  # the job may have left a link here that leads elsewhere
                try:
                    shutil.copy2(source, target)
                except FileNotFoundError:
                    if source.exists():
                        raise
                    continue
                kept.append(target)
    except PermissionError as error:  # another run would be paid for in vain
        why = f"output {error.filename} cannot be kept: {error.strerror}"
        raise DeployError(why, hint="look at whom the job lets read it", retryable=False) from error
    except OSError as error:
        raise DeployError(f"an output cannot be kept: {error.strerror or error}") from error
    return kept


def _matches(root: Path, pattern: str) -> Iterator[Path]:
    if pattern.startswith("/") or ".." in PurePosixPath(pattern).parts:
        raise DeployError(f"output pattern {pattern!r} leaves the working folder", retryable=False)
    for found in _found(root, pattern):
        files = (Path(top) / name for top, _, names in os.walk(found) for name in names) if found.is_dir() else [found]
        for file in files:
            place = file.parent.resolve() / file.name
            real = file.resolve()
            if real.is_file() and real.is_relative_to(root) and place.is_relative_to(root):
                yield place


def _found(root: Path, pattern: str) -> list[Path]:
    for _ in range(_LOOKS - 1):
        with contextlib.suppress(FileNotFoundError):  # a folder vanished before it was looked into
            return sorted(root.glob(pattern))
    return sorted(root.glob(pattern))
