"""Files that users hand in with a form, and the folder that a job finds them in."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import shutil
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tradewind.errors import InputError, StoreError

UPLOADS = "uploads"
"""The folder of handed-in files, below the job's."""


@dataclass(frozen=True, slots=True)
class FileValue:
    """A file that was handed in.

    Attributes:
        digest: SHA-256 of the data, in hexadecimal; empty where no file was handed in.
        name: The user's name for it, for people only: no path is made of it.
        size: Length in bytes.
        suffix: The ending of its name in the run.
        data: The file itself, where it came with the form.
    """

    digest: str
    name: str = ""
    size: int = 0
    suffix: str = ""
    data: bytes | None = None

    @classmethod
    def none(cls, suffix: str = "") -> FileValue:
        """Return the value for no file, where none is needed."""
        return cls("", suffix=suffix)

    @classmethod
    def of(cls, name: str, data: bytes, suffix: str = "") -> FileValue:
        """Make the value of a file from its data."""
        return cls(hashlib.sha256(data).hexdigest(), _name(name), len(data), suffix, data)

    @classmethod
    def read(cls, given: Any, suffix: str = "") -> FileValue:
        """Read the value of a file from a request.

        Args:
            given: ``{name, text}``, ``{name, base64}``, or ``{file: sha256:..., name, size}`` of one handed in before.
            suffix: The ending of its name in the run.

        Raises:
            InputError: It is none.
        """
        how = "write {name: ..., text: ...}, {name: ..., base64: ...} or {file: sha256:...}"
        if isinstance(given, FileValue):
            return given
        if not isinstance(given, Mapping) or set(given) - {"name", "text", "base64", "file", "size"}:
            raise InputError("is no file", hint=how)
        name = str(given.get("name", ""))
        if isinstance(given.get("text"), str):
            return cls.of(name, given["text"].encode("utf-8", "replace"), suffix)
        if isinstance(given.get("base64"), str):
            try:
                return cls.of(name, base64.b64decode(given["base64"], validate=True), suffix)
            except (binascii.Error, ValueError):
                raise InputError("is no base64 text") from None
        match = re.fullmatch(r"sha256:([0-9a-f]{64})", str(given.get("file", "")))
        size = given.get("size", 0)
        if not match or isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise InputError("is no file", hint=how)
        return cls(match[1], _name(name), size, suffix)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that a request keeps."""
        return {"file": f"sha256:{self.digest}", "name": self.name, "size": self.size}


def _name(text: str) -> str:
    return re.sub(r"[^\w. +-]", "_", text.replace("\\", "/").rpartition("/")[2])[:100]


def write_job_files(files: Mapping[str, bytes], folder: Path) -> Path:
    """Make the folder of a job, whole or not at all; one that is there already is left as it is.

    Args:
        files: The files by their names below it.
        folder: The folder to make.

    Raises:
        StoreError: The disk is full, or the server may not write there.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(prefix=".making-", dir=folder.parent))
        try:
            for name, data in files.items():
                path = made / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(data)
                path.chmod(0o755 if data.startswith(b"#!") else 0o644)
            made.chmod(0o755)
            made.rename(folder)
        except OSError:
            shutil.rmtree(made, ignore_errors=True)
            if not folder.is_dir():  # another worker was quicker
                raise
    except OSError as error:
        raise StoreError(f"cannot write into {folder.parent}: {error.strerror or error}") from error
    return folder


def shared_job_folder(files: Mapping[str, bytes], below: Path) -> Path:
    """Return the folder that files with these contents always get."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{len(name)}:{name}{len(files[name])}:".encode())
        digest.update(files[name])
    return below / digest.hexdigest()[:32]
