"""A server in this process, with users of two tenants."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from tradewind.service.app import create_app
from tradewind.service.context import Context, open_context
from tradewind.service.settings import ServiceSettings


@pytest.fixture
def settings() -> ServiceSettings:
    """The server's settings; a module that needs others has a fixture of the same name."""
    return ServiceSettings()


@pytest.fixture
def context(tmp_path: Path, settings: ServiceSettings) -> Iterator[Context]:
    """What the parts of the server share."""
    opened = open_context(settings, f"sqlite:///{tmp_path}/service.db", tmp_path / "home")
    yield opened
    opened.close()


@pytest.fixture
def client(context: Context) -> Iterator[TestClient]:
    """A client of the server that is nobody yet."""
    with TestClient(create_app(context), base_url="http://tradewind.test") as client:
        yield client


def token(context: Context, name: str, *, role: str = "user", tenant: str = "") -> dict[str, str]:
    """The headers of a new user's calls."""
    user = context.accounts.add_user(name, role=role, tenant=tenant)  # type: ignore[arg-type]
    return {"Authorization": f"Bearer {context.accounts.make_token(user.id, 'test')}"}


@pytest.fixture
def ann(context: Context) -> dict[str, str]:
    """Headers of a user of the tenant ``physics``."""
    return token(context, "ann", tenant="physics")


@pytest.fixture
def bob(context: Context) -> dict[str, str]:
    """Headers of a user of another tenant, ``biology``."""
    return token(context, "bob", tenant="biology")


@pytest.fixture
def root(context: Context) -> dict[str, str]:
    """Headers of an administrator."""
    return token(context, "root", role="admin")
