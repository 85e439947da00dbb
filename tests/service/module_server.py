"""One server for all tests of a module: most of them need no more than their own requests."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi.testclient import TestClient
from tests.service.live_server import HELLO, principal

from tradewind.service.app import create_app
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings


@dataclass(frozen=True)
class House:
    """A server with an application that everybody may run, and users of two tenants.

    Attributes:
        context: What its parts share.
        client: A client that is nobody yet.
        ann: Headers of a user of ``physics``.
        bob: Headers of a user of ``biology``.
        root: Headers of an administrator.
        hello: The application, ``name@version``.
    """

    context: Context
    client: TestClient
    ann: dict[str, str]
    bob: dict[str, str]
    root: dict[str, str]
    hello: str


@contextmanager
def house(folder: Path, settings: ServiceSettings | None = None) -> Iterator[House]:
    """Such a server, until the block ends."""
    context = open_context(settings or ServiceSettings(), f"sqlite:///{folder}/service.db", folder / "home")
    try:
        headers = {}
        for name, role, tenant in (("ann", "user", "physics"), ("bob", "user", "biology"), ("root", "admin", "root")):
            user = context.accounts.add_user(name, role=role, tenant=tenant)  # type: ignore[arg-type]
            headers[name] = {"Authorization": f"Bearer {context.accounts.make_token(user.id, 'test')}"}
        hello = context.applications.register(principal(context, "root"), HELLO, shared=True).reference
        with TestClient(create_app(context), base_url="http://tradewind.test") as client:
            yield House(context, client, headers["ann"], headers["bob"], headers["root"], hello)
    finally:
        context.close()
