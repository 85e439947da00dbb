"""A stream to a further command in the pod of a run, over a WebSocket of the cluster's API.

The API's protocol ``channel.k8s.io`` puts the number of a stream before each piece. Its version 5 can end the command's
input alone; with version 4, of clusters before 1.30, it ends with the connection.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from collections.abc import Sequence
from contextlib import suppress

from tradewind.deployer.runner.kubernetes.api import ClusterApi
from tradewind.deployer.runner.kubernetes.job import CONTAINER, FOLDER

_log = logging.getLogger("tradewind.deployer")

_STDIN, _STDOUT, _ERROR, _CLOSE = 0, 1, 3, 255
_WITH_CLOSE = "v5.channel.k8s.io"
_PROTOCOLS = (_WITH_CLOSE, "v4.channel.k8s.io")
_PIECE = 1 << 16
_IN_WORK = 'cd "$1" && shift && exec "$@"'
"""The API starts commands in the image's own folder."""


def open_channel(api: ClusterApi, pod: str, argv: Sequence[str]) -> socket.socket:
    """Run a command in the working folder of a pod, with a stream to its standard input and from its standard output.

    Args:
        api: The API of the cluster.
        pod: The pod's name.
        argv: The command and its arguments.

    Raises:
        ObjectNotFound: There is no such pod.
        TradewindError: The API does not answer, or refuses.
    """
    command = [f"{FOLDER}/bin/busybox", "sh", "-c", _IN_WORK, "sh", f"{FOLDER}/work", *argv]
    query = [("container", CONTAINER), ("stdin", "true"), ("stdout", "true"), ("stderr", "false"), ("tty", "false")]
    query += [("command", word) for word in command]
    theirs = api.websocket(api.path("pods", f"{pod}/exec"), query, _PROTOCOLS)
    ours, inner = socket.socketpair()

    def up() -> None:
        with suppress(OSError):
            while piece := inner.recv(_PIECE):
                theirs.send(bytes((_STDIN,)) + piece)
        with suppress(OSError):  # the command's input ends, and so it does
            if theirs.protocol == _WITH_CLOSE:
                theirs.send(bytes((_CLOSE, _STDIN)))
            else:
                theirs.end()

    def down() -> None:
        with suppress(OSError):
            while piece := theirs.receive():
                if piece[0] == _STDOUT:
                    inner.sendall(piece[1:])
                elif piece[0] == _ERROR:
                    _note(pod, argv[0], piece[1:])
        with suppress(OSError):
            inner.shutdown(socket.SHUT_RDWR)
        theirs.close()
        uploading.join()
        inner.close()

    uploading = threading.Thread(target=up, name="tradewind-kubernetes-up", daemon=True)
    uploading.start()
    threading.Thread(target=down, name="tradewind-kubernetes-down", daemon=True).start()
    return ours


def _note(pod: str, program: str, status: bytes) -> None:
    """Log why a command could not be started, or ended badly."""
    with suppress(ValueError, AttributeError):
        found = json.loads(status)
        if found.get("status") != "Success":
            _log.info("%s in pod %s: %s", program, pod, found.get("message", ""))
