"""The archives of files that runs take to a Ray cluster: each is in its store once, for all runs that have a note."""

from __future__ import annotations

import threading
import zlib
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from tradewind.deployer.runner.ray.kv_store import delete, get, put, put_bytes

_PIECE = 4 << 20


class ArchiveStore:
    """Puts archives into the cluster's store, and takes them away after the last run that has them."""

    def __init__(self) -> None:
        # Between the last run's note that goes and the next one's that comes nothing may be taken away.
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)

    def bring(self, space: str, key: str, digest: str, path: Path) -> None:
        """Put an archive into the store, unless it is there.

        Args:
            space: The part of the store.
            key: The run that needs it.
            digest: Its name there.
            path: Where it is here.
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
