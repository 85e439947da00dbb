"""The store of a Ray cluster, which its head keeps: what is known of the runs; sent to the nodes by value."""

from __future__ import annotations

import json
from typing import Any


def put(space: str, key: str, document: Any, *, overwrite: bool = True) -> bool:
    """Write a document into the cluster's store; False when it was there and is not to be overwritten."""
    from ray.experimental import internal_kv

    value = json.dumps(document).encode()
    return not internal_kv._internal_kv_put(key.encode(), value, overwrite, namespace=space.encode()) or overwrite


def put_bytes(space: str, key: str, value: bytes) -> None:
    """Write a value into the cluster's store."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_put(key.encode(), value, namespace=space.encode())


def get_bytes(space: str, key: str) -> bytes:
    """A value of the cluster's store; empty if there is none."""
    from ray.experimental import internal_kv

    return internal_kv._internal_kv_get(key.encode(), namespace=space.encode()) or b""


def get(space: str, key: str) -> Any:
    """A document of the cluster's store, or None."""
    return json.loads(get_bytes(space, key) or b"null")


def delete(space: str, key: str, *, prefix: bool = False) -> None:
    """Remove a key from the cluster's store, or all that begin with it."""
    from ray.experimental import internal_kv

    internal_kv._internal_kv_del(key.encode(), del_by_prefix=prefix, namespace=space.encode())
