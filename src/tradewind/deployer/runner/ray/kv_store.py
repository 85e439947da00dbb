"""The key-value store of a Ray cluster, which its head keeps, and the archives of files in it.

The records of the runs are in it, by the keys that `tradewind.deployer.runner.ray.node_executor` lists. This module is
sent to the nodes by value: it uses the standard library and Ray only.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

_PIECE = 4 << 20


def put(space: str, key: str, document: Any, *, overwrite: bool = True) -> bool:
    """Write a JSON document into the cluster's store; False when the key was there and ``overwrite`` is false."""
    from ray.experimental import internal_kv

    value = json.dumps(document).encode()
    return not internal_kv._internal_kv_put(key.encode(), value, overwrite, namespace=space.encode()) or overwrite


def put_bytes(space: str, key: str, value: bytes) -> None:
    """Write bytes into the cluster's store."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key.encode(), value, namespace=space.encode())


def get_bytes(space: str, key: str) -> bytes:
    """The bytes of a key of the cluster's store; empty if there is none."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_get(key.encode(), namespace=space.encode()) or b""


def get(space: str, key: str) -> Any:
    """The JSON document of a key of the cluster's store, or None."""
    return json.loads(get_bytes(space, key) or b"null")


def delete(space: str, key: str, *, prefix: bool = False) -> None:
    """Remove a key from the cluster's store, or all that begin with it."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key.encode(), del_by_prefix=prefix, namespace=space.encode())


class ArchiveStore:
    """Puts archives of files into the cluster's store, each once, and removes them after the last run that needs them.

    Each run that needs an archive has a note in ``uses/``.
    """

    def __init__(self) -> None:
        # Between the last run's note that goes and the next one's that comes nothing may be taken away.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def bring(self, space: str, key: str, digest: str, path: Path) -> None:
        """Put an archive into the store, unless it is there.

        Args:
            space: The part of the store.
            key: The key of the run that needs it.
            digest: The archive's name in the store.
            path: The archive on this machine.
        """
        with self._locks[digest]:
            put(space, f"uses/{digest}/{key}", {})
            if get(space, f"bundle/{digest}") is not None:
                return
            count = 0
            with path.open("rb") as file:
                while content := file.read(_PIECE):
                    put_bytes(space, f"piece/{digest}/{count}", zlib.compress(content, 1))
                    count += 1
            put(space, f"bundle/{digest}", {"pieces": count})

    def drop(self, space: str, key: str, digests: Iterable[str]) -> None:
        """Take away the archives of a run that nobody else needs."""
        from ray.experimental import internal_kv

        for digest in digests:
            with self._locks[digest]:
                delete(space, f"uses/{digest}/{key}")
                if not internal_kv._internal_kv_list(f"uses/{digest}/".encode(), namespace=space.encode()):
                    delete(space, f"bundle/{digest}")
                    delete(space, f"piece/{digest}/", prefix=True)
