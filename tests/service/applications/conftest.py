"""Users of two tenants and an administrator, as the functions see them."""

from __future__ import annotations

import pytest

from tradewind.service.accounts.identity import Principal
from tradewind.service.context import Context
from tradewind.store.service.accounts import Role


def person(context: Context, name: str, tenant: str, role: Role = "user") -> Principal:
    """A new user."""
    user = context.accounts.add_user(name, role=role, tenant=tenant)
    return Principal(user.id, user.name, role, user.tenant)


@pytest.fixture
def root(context: Context) -> Principal:
    """An administrator."""
    return person(context, "root", "operations", "admin")


@pytest.fixture
def ann(context: Context) -> Principal:
    """A user of the tenant ``physics``."""
    return person(context, "ann", "physics")


@pytest.fixture
def bob(context: Context) -> Principal:
    """A user of the tenant ``biology``."""
    return person(context, "bob", "biology")
