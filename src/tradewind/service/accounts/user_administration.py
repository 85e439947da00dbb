"""Administration of users and tenants; each change is in the audit log."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from tradewind.errors import ConflictError, ForbiddenError, InputError, NotFoundError
from tradewind.service.accounts import identity
from tradewind.service.accounts.account_service import AccountService
from tradewind.service.accounts.audit_log import AuditLog
from tradewind.service.accounts.identity import ROLES, Principal
from tradewind.store.clusters.cluster_store import ClusterStore, TenantRow
from tradewind.store.service.accounts import Role, TokenRow, UserRow
from tradewind.tenancy.preemption.policy import preemption_document
from tradewind.tenancy.resources import check_quota

TokenRows = list[TokenRow]  # within the class, `list` is the function that lists users
TenantRows = list[TenantRow]
_LARGEST = 2**31 - 1  # what every database takes for an integer


class UserAdministration:
    """Users and tenants, for administrators.

    Args:
        accounts: What users do with their own accounts.
        cluster: The tables of tenants.
        audit: The audit log.
    """

    def __init__(self, accounts: AccountService, cluster: ClusterStore, audit: AuditLog) -> None:
        self._accounts = accounts
        self._store = accounts.store
        self._cluster = cluster
        self._audit = audit

    def list(
        self, who: Principal, *, after: str = "", limit: int | None = None, removed: bool = False
    ) -> list[UserRow]:
        """List users by name.

        Args:
            who: The user who asks.
            after: Only those whose name comes later: the next page.
            limit: Rows at most.
            removed: Also those that were removed, but have left requests.

        Raises:
            ForbiddenError: The user is no administrator.
        """
        self._check(who, "user.list")
        return self._store.users(after=identity.clean_text(after), limit=limit, removed=removed)

    def get(self, who: Principal, name: str) -> UserRow:
        """Return one user.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is none of that name.
        """
        self._check(who, "user.get")
        return self._named(name)

    def check_new(self, who: Principal, name: str, tenant: str = "") -> None:
        """Check that a user could be added, before more is asked for.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            InputError: The name is none.
            ConflictError: The name is taken.
        """
        self._check(who, "user.add")
        if tenant:
            identity.check_name(tenant, "tenant")
        if (user := self._store.find(identity.check_name(name))) is not None:
            was = " (it was removed, and left requests)" if user.state == "removed" else ""
            raise ConflictError(f"there is a user {user.name!r} already{was}", hint="take another name")

    def add(
        self,
        who: Principal,
        name: str,
        *,
        role: str = "user",
        tenant: str = "",
        email: str = "",
        password: str | None = None,
    ) -> UserRow:
        """Add a user.

        Args:
            who: The user who asks.
            name: The name to sign in with; kept in small letters.
            role: What the user may do.
            tenant: Tenant whose requests the user sees and makes; one of the user's own without it.
            email: Address that notices go to.
            password: To sign in with; without one, the user has only tokens.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            InputError: The name, the address or the password is none.
            ConflictError: The name is taken.
        """
        self._check(who, "user.add")
        _one_of(role, ROLES, "role")
        user = self._accounts.add_user(name, role=cast("Role", role), tenant=tenant, email=email, password=password)
        self._audit.record(who, "user.add", f"user {user.name}", role=user.role, of=user.tenant)
        return user

    def change(
        self,
        who: Principal,
        name: str,
        *,
        role: str | None = None,
        tenant: str | None = None,
        email: str | None = None,
        state: str | None = None,
        password: str | None = None,
    ) -> UserRow:
        """Change a user; what is None stays as it is, and either all is changed or nothing.

        Args:
            who: The user who asks.
            name: The user.
            role: What the user may do.
            tenant: Tenant whose requests the user sees and makes; those made until now stay where they are.
            email: Address that notices go to.
            state: ``locked``: sessions end, and tokens open nothing until it is ``active`` again.
            password: To sign in with; all sessions end.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is none of that name.
            InputError: A value is none.
            ConflictError: It is the last administrator.
        """
        self._check(who, "user.change")
        user = self._named(name)
        fields: dict[str, Any] = {}
        if role is not None:
            fields["role"] = _one_of(role, ROLES, "role")
        if state is not None:
            fields["state"] = _one_of(state, ("active", "locked"), "state")
        if tenant is not None:
            fields["tenant"] = identity.check_name(tenant, "tenant")
        if email is not None:
            fields["email"] = identity.check_email(email)
        shown = {key: value for key, value in fields.items() if key != "email"}
        if password is not None:
            fields["password"] = self._accounts.digest(password, user.name)
        changed = self._store.change(user.id, **fields)
        if state == "locked" or password is not None:
            self._accounts.end_sessions(changed)
        self._audit.record(who, "user.change", f"user {user.name}", fields=sorted(fields), **shown)
        return changed

    def remove(self, who: Principal, name: str) -> bool:
        """Remove a user with tokens and sessions.

        A user who has made requests stays as a name that nobody can sign in with or take again, so that it is still
        known whose they were.

        Returns:
            True where nothing is left; False where the name stays with the user's requests.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is none of that name.
            ConflictError: It is the last administrator.
        """
        self._check(who, "user.remove")
        user = self._named(name)
        gone = self._store.remove(user.id)
        self._audit.record(who, "user.remove", f"user {user.name}")
        return gone

    # ------------------------------------------------------------------ tokens

    def tokens(self, who: Principal, name: str) -> TokenRows:
        """List the tokens of a user, the newest first.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is none of that name.
        """
        self._check(who, "token.list")
        return self._store.tokens_of(self._named(name).id)

    def make_token(self, who: Principal, name: str, called: str, *, days: float | None = None) -> str:
        """Make a token for a user; it is shown this once.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is none of that name.
            InputError: The name or the lifetime is not valid.
        """
        self._check(who, "token.make")
        user = self._named(name)
        secret = self._accounts.make_token(user.id, called, days=days)
        self._audit.record(who, "token.make", f"user {user.name}", called=identity.clean_text(called))
        return secret

    def revoke_token(self, who: Principal, name: str, number: int | None = None) -> int:
        """Revoke a token of a user, or all of them.

        Args:
            who: The user who asks.
            name: The user whose token it is.
            number: Number of the token; None for all.

        Returns:
            The number of tokens that were revoked.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            NotFoundError: There is no such user or token.
        """
        self._check(who, "token.revoke")
        user = self._named(name)
        if number is None:
            count = self._store.delete_tokens_of(user.id)
        else:
            self._store.delete_token(user.id, number)
            count = 1
        self._audit.record(who, "token.revoke", f"user {user.name}", tokens=count)
        return count

    # ------------------------------------------------------------------ tenants

    def tenants(self, who: Principal) -> TenantRows:
        """List the tenants that the user who asks may see, by name: an administrator all, others their own."""
        return [row for row in self._cluster.tenants() if who.may_see(row.name)]

    def set_tenant(
        self,
        who: Principal,
        name: str,
        *,
        weight: float | None = None,
        priority: int | None = None,
        quota: Mapping[str, float] | None = None,
        preempt: Mapping[str, Any] | None = None,
    ) -> TenantRow:
        """Add a tenant, or change its share, the most that it may use, and whether it may end runs of others.

        Args:
            who: The user who asks.
            name: The tenant.
            weight: Its share against others; stays as it is without it.
            priority: Larger goes first under strict priority; stays as it is without it.
            quota: The most that it may use at a time of ``cpu``, ``memory`` (GiB), ``gpu`` and ``requests``, and of
                ``dollars`` in all; stays as it is without it.
            preempt: Its preemption policy, ``within``, ``pays`` and ``exempt``; empty: it ends no runs; stays as it is
                without it.

        Raises:
            ForbiddenError: The user who asks is no administrator.
            InputError: A value is none.
        """
        self._check(who, "tenant.set")
        kept = identity.check_name(name, "tenant")
        # Tenants of clusters may have names that no user can have.
        old = next((row for row in self._cluster.tenants() if row.name in (name, kept)), TenantRow(kept))
        if weight is not None and not 0 < weight < math.inf:
            raise InputError(f"the weight {weight:g} is none", hint="a weight is above 0")
        if priority is not None and abs(priority) > _LARGEST:
            raise InputError(f"the priority {priority} is too large", hint="numbers from -10 to 10 will do")
        if quota is not None:
            check_quota(quota)
        changed = {
            "weight": weight,
            "priority": priority,
            "quota": None if quota is None else dict(quota),
            "preempt": preemption_document(preempt) if preempt else preempt,
        }
        given: dict[str, Any] = {key: value for key, value in changed.items() if value is not None}
        row = replace(old, **given)
        self._cluster.set_tenant(row)
        self._audit.record(who, "tenant.set", f"tenant {row.name}", **given)
        return row

    def _check(self, who: Principal, action: str) -> None:
        if not who.is_admin:
            raise ForbiddenError("only an administrator may do this", hint=f"{action} is not for the role {who.role}")

    def _named(self, name: str) -> UserRow:
        user = self._store.find(identity.lookup_name(name))
        if user is None or user.state == "removed":
            raise NotFoundError("there is no such user", hint="tradewind user list shows all")
        return user


def _one_of(value: str, known: Sequence[str], what: str) -> str:
    if value not in known:
        raise InputError(f"{identity.clean_text(value, 40)!r} is no {what}", hint=f"write {' or '.join(known)}")
    return value
