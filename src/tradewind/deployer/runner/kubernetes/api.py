"""Calls the API of a Kubernetes cluster, with JSON documents, and turns its refusals into typed errors."""

from __future__ import annotations

import json
import os
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from tradewind import plugins
from tradewind.errors import (
    CapacityError,
    CredentialsError,
    DeployError,
    MissingProgramError,
    PrerequisiteError,
    UnreachableError,
)
from tradewind.utils.dependencies import install_command
from tradewind.utils.paths import expand

Document = dict[str, Any]
"""An object of the API, as JSON."""

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 20.0
_PAGE = 500
_CLOSE_FRAME = 0x8
_RENEW_SECONDS = 10.0
_IN_POD = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")
_CREDENTIALS_HINT = "set kubeconfig and context, or KUBECONFIG"


class ObjectNotFound(Exception):  # noqa: N818  (it is an answer)
    """The API has no such object."""


class ObjectConflict(Exception):  # noqa: N818  (it is an answer)
    """The object is there already, or has changed meanwhile."""


def find_package() -> None:
    """Check that the official Python client is installed.

    Raises:
        MissingProgramError: It is not.
    """
    if not plugins.installed("kubernetes"):
        raise _no_package()


def _no_package() -> MissingProgramError:
    return MissingProgramError("the package kubernetes is not installed", hint=install_command("kubernetes"))


def find_credentials() -> None:
    """Check that there is a file with credentials, which is not read.

    Raises:
        CredentialsError: There is none.
        InputError: ``~`` is nobody's home.
    """
    if _IN_POD.exists():  # where the user may have no home
        return
    given = os.environ.get("KUBECONFIG") or "~/.kube/config"
    if not any(expand(place).exists() for place in given.split(os.pathsep) if place):
        raise CredentialsError(f"no Kubernetes credentials: there is no {given}", hint=_CREDENTIALS_HINT)


class WebSocketConnection:
    """A connection that carries messages both ways; one thread may send while another one receives.

    Args:
        made: The connection of the package websocket-client.

    Attributes:
        protocol: The subprotocol that the server has chosen.
    """

    def __init__(self, made: Any) -> None:
        self._made = made
        self.protocol = str((made.getheaders() or {}).get("sec-websocket-protocol", ""))

    def send(self, data: bytes) -> None:
        """Send a message.

        Raises:
            OSError: The connection is lost.
        """
        self._guard(self._made.send_binary, data)

    def receive(self) -> bytes:
        """Wait for a message; empty at the end.

        Raises:
            OSError: The connection is lost.
        """
        while True:
            kind, data = self._guard(self._made.recv_data)
            if kind == _CLOSE_FRAME:
                return b""
            if data:
                return bytes(data)

    def end(self) -> None:
        """Ask the other side to end the connection.

        Raises:
            OSError: The connection is lost.
        """
        self._guard(self._made.send_close)

    def close(self) -> None:
        """Close the connection without a word."""
        with suppress(OSError):
            self._guard(self._made.shutdown)

    @staticmethod
    def _guard(call: Callable[..., Any], *words: Any) -> Any:
        import websocket

        try:
            return call(*words)
        except websocket.WebSocketException as error:
            raise ConnectionError(str(error)) from None


class ClusterApi:
    """Calls the API of one cluster and namespace; it may be used by several threads.

    The official client reads the credentials in all their forms; its models are left aside, because making them of a
    list of 500 pods takes seconds.

    Args:
        kubeconfig: The file with clusters and credentials; empty for ``KUBECONFIG``, ``~/.kube/config``, or, in a pod,
            the pod's own account.
        context: The context in it, or empty for its current one.
        namespace: The namespace; empty for the context's.
    """

    def __init__(self, *, kubeconfig: str, context: str, namespace: str) -> None:
        self._given = (kubeconfig, context)
        self._namespace = namespace
        self._lock = threading.Lock()
        self._connection: tuple[Any, Any] | None = None
        self._renewed = float("-inf")

    @property
    def namespace(self) -> str:
        """The namespace of the runs."""
        self._connect()
        return self._namespace

    def _connect(self) -> tuple[Any, Any]:
        """The client's configuration and its connections."""
        with self._lock:
            if self._connection is not None:
                return self._connection
            try:
                from kubernetes import client, config
            except ImportError as error:
                raise _no_package() from error
            loader: Any = config
            configuration = client.Configuration()
            kubeconfig, context = self._given
            try:
                if _IN_POD.exists() and not kubeconfig:
                    loader.load_incluster_config(client_configuration=configuration)
                    home = _IN_POD.read_text(encoding="ascii").strip()
                else:
                    file = str(expand(kubeconfig)) if kubeconfig else None
                    loader.load_kube_config(file, context or None, client_configuration=configuration)
                    contexts, current = loader.list_kube_config_contexts(file)
                    chosen = next((each for each in contexts if each["name"] == context), current)
                    home = chosen["context"].get("namespace", "")
            except config.ConfigException as error:
                raise CredentialsError(f"no Kubernetes credentials: {error}", hint=_CREDENTIALS_HINT) from None
            except (OSError, ssl.SSLError, ValueError, KeyError) as error:
                raise CredentialsError(
                    f"the Kubernetes credentials cannot be read: {error}", hint="set kubeconfig to a readable file"
                ) from None
            self._namespace = self._namespace or home or "default"
            self._connection = configuration, client.ApiClient(configuration).rest_client.pool_manager
            return self._connection

    def call(
        self,
        method: str,
        path: str,
        body: Document | None = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = _READ_SECONDS,
        kind: str = "application/json",
    ) -> bytes:
        """Make one call and return the content of its answer.

        Args:
            method: ``GET``, ``POST``, ``PATCH`` or ``DELETE``.
            path: The path below the server's address.
            body: The document that is sent, or None.
            query: The parameters behind the question mark, by name.
            seconds: Seconds that the server may be silent.
            kind: The content type of the body.

        Raises:
            ObjectNotFound: There is no such object.
            ObjectConflict: The object is there already, or has changed.
            CredentialsError: The server does not accept our credentials, or they lack the right.
            CapacityError: A quota is used up.
            UnreachableError: The server does not answer, or has trouble.
            DeployError: It refused for another reason.
        """
        query_text = f"?{urlencode(query)}" if query else ""
        content = None if body is None else json.dumps(body).encode()
        answer = self._request(method, path + query_text, content, seconds, kind)
        if answer.status == HTTPStatus.UNAUTHORIZED and self._renew():
            answer = self._request(method, path + query_text, content, seconds, kind)
        if answer.status < 400:
            return bytes(answer.data)
        raise _refusal(answer.status, bytes(answer.data), f"{method} {path}")

    def _renew(self) -> bool:
        """Have the credentials read again: a login may have been renewed, or a plugin may have another token."""
        with self._lock:
            if time.monotonic() < self._renewed + _RENEW_SECONDS:
                return False
            self._renewed, self._connection = time.monotonic(), None
            return True

    def _request(self, method: str, path: str, body: bytes | None, seconds: float, kind: str) -> Any:
        configuration, pool = self._connect()  # says what is not installed
        import urllib3

        headers = {"Content-Type": kind, "Accept": "application/json, */*"}
        for setting in configuration.auth_settings().values():
            headers[setting["key"]] = setting["value"]
        try:
            return pool.request(
                method,
                configuration.host + path,
                body=body,
                headers=headers,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=seconds),
                retries=False,
            )
        except urllib3.exceptions.HTTPError as error:
            raise _silent(configuration.host, error) from None

    def websocket(self, path: str, query: Sequence[tuple[str, str]], protocols: Sequence[str]) -> WebSocketConnection:
        """Open a WebSocket; see `call` for what it raises.

        Args:
            path: The path below the server's address.
            query: The parameters behind the question mark; a name may be there several times.
            protocols: The subprotocols that are understood, the best first.
        """
        call = f"GET {path}"
        for attempt in (0, 1):
            configuration, _ = self._connect()  # says what is not installed
            import websocket

            headers = {setting["key"]: setting["value"] for setting in configuration.auth_settings().values()}
            headers["Sec-WebSocket-Protocol"] = ",".join(protocols)
            address = f"ws{configuration.host.removeprefix('http')}{path}?{urlencode(query)}"
            try:
                made = websocket.create_connection(
                    address, _CONNECT_SECONDS, header=headers, **_websocket_options(configuration, address, headers)
                )
            except websocket.WebSocketBadStatusException as error:
                if error.status_code == HTTPStatus.UNAUTHORIZED and not attempt and self._renew():
                    continue
                raise _refusal(error.status_code, error.resp_body or b"", call) from None
            except (websocket.WebSocketException, OSError) as error:
                raise _silent(configuration.host, error) from None
            made.settimeout(None)
            return WebSocketConnection(made)
        raise AssertionError  # the second attempt has returned or raised

    def document(self, method: str, path: str, body: Document | None = None, **given: Any) -> Document:
        """Make one call whose answer is a JSON document; see `call`."""
        found: Document = json.loads(self.call(method, path, body, **given))
        return found

    def path(self, kind: str, name: str = "") -> str:
        """The path of an object of the namespace, or of all of a kind without a name."""
        groups = {"jobs": "/apis/batch/v1", "leases": "/apis/coordination.k8s.io/v1"}
        place = f"{groups.get(kind, '/api/v1')}/namespaces/{self.namespace}/{kind}"
        return f"{place}/{name}" if name else place

    def listed(
        self, kind: str, selector: str, *, fields: str = "", everywhere: bool = False, seconds: float = _READ_SECONDS
    ) -> list[Document]:
        """All objects of a kind with some labels and fields, page by page where there are many.

        Args:
            kind: The plural name of the kind, such as ``pods``.
            selector: The label selector.
            fields: The field selector, or empty.
            everywhere: True for the objects of all namespaces, or of a kind without namespaces.
            seconds: Seconds that the server may be silent.
        """
        found: list[Document] = []
        query = {"labelSelector": selector, "limit": str(_PAGE), **({"fieldSelector": fields} if fields else {})}
        path = f"/api/v1/{kind}" if everywhere else self.path(kind)
        while True:
            page = self.document("GET", path, query=query, seconds=seconds)
            found += page.get("items") or []
            more = page.get("metadata", {}).get("continue")
            if not more:
                return found
            query["continue"] = more

    def patch(self, kind: str, name: str, body: Document) -> Document:
        """Change some fields of an object."""
        return self.document("PATCH", self.path(kind, name), body, kind="application/merge-patch+json")

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._connection is not None:
                self._connection[1].clear()
                self._connection = None


def _silent(host: str, error: Exception) -> UnreachableError:
    return UnreachableError(
        f"the Kubernetes API at {host} does not answer: {type(error).__name__}",
        hint="is the address in the kubeconfig right, and the cluster up?",
    )


def _websocket_options(configuration: Any, address: str, headers: Mapping[str, str]) -> Document:
    """The options of the package websocket-client for the certificates and the proxy of a configuration."""
    from kubernetes.stream import ws_client

    trust: Document = {"cert_reqs": ssl.CERT_NONE, "check_hostname": False}
    if configuration.verify_ssl:
        trust = {"cert_reqs": ssl.CERT_REQUIRED, "check_hostname": configuration.assert_hostname is not False}
        if configuration.ssl_ca_cert:
            trust["ca_certs"] = configuration.ssl_ca_cert
    given = {
        "certfile": configuration.cert_file,
        "keyfile": configuration.key_file,
        "server_hostname": getattr(configuration, "tls_server_name", None),
    }
    trust |= {name: value for name, value in given.items() if value}
    options: Document = {"sslopt": trust}
    proxied: Any = ws_client.websocket_proxycare
    if configuration.proxy or configuration.proxy_headers:
        options = proxied(options, configuration, address, dict(headers))
    return options


def _refusal(status: int, content: bytes, call: str) -> Exception:
    try:
        document = json.loads(content)
        words, reason = str(document.get("message", "")), str(document.get("reason", ""))
    except (ValueError, AttributeError):
        words, reason = content.decode(errors="replace")[:200], ""
    words = words or f"{call}: HTTP {status}"
    if status == 404 and "namespaces" in words and "not found" in words and call.startswith("POST"):
        return PrerequisiteError(f"Kubernetes: {words}", hint="set namespace to one that is there")
    if status == 404 or (status == 400 and "is waiting to start" in words):  # the latter is said of a log
        return ObjectNotFound(words)
    if status == 409:
        return ObjectConflict(words)
    if status == 401:
        return CredentialsError(f"Kubernetes does not know us: {words}", hint="renew the credentials of the kubeconfig")
    if status == 403 and "exceeded quota" in words:
        return CapacityError(f"Kubernetes: {words}", hint="wait, ask for less, or for a larger quota")
    if status == 403:
        return CredentialsError(f"Kubernetes: {words}", hint="the guide lists the rights that the account needs")
    if status in (429, 500, 502, 503, 504):
        return UnreachableError(f"the Kubernetes API has trouble: HTTP {status} {words}")
    if reason == "Invalid" or status in (400, 413, 422):
        return DeployError(f"Kubernetes refuses the job: {words}", retryable=False)
    return DeployError(f"Kubernetes: HTTP {status} {words}")
