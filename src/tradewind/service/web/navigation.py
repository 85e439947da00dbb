"""What stands in the navigation: a page that is to be found there adds one line."""

from __future__ import annotations

from dataclasses import dataclass

from tradewind.service.people import Principal


@dataclass(frozen=True, slots=True)
class NavigationEntry:
    """A line of the navigation.

    Attributes:
        title: Its words.
        path: Where it leads; it is marked as current on this path and all below it.
        icon: An icon of ``icons.html.j2``.
        group: The heading above it; entries of a group stand together.
        admin: Whether only administrators see it.
    """

    title: str
    path: str
    icon: str
    group: str = ""
    admin: bool = False


NAVIGATION: tuple[NavigationEntry, ...] = (
    NavigationEntry("Requests", "/requests", "list"),
    NavigationEntry("Applications", "/applications", "grid"),
    NavigationEntry("Studies", "/studies", "chart"),
    NavigationEntry("Workflows", "/workflows", "flow"),
    NavigationEntry("Cluster", "/cluster", "server"),
    NavigationEntry("Offers", "/offers", "tag"),
    NavigationEntry("Administration", "/admin", "shield", admin=True),
)
"""The navigation, from the top."""


def navigation_for(who: Principal) -> list[NavigationEntry]:
    """The entries that somebody sees."""
    return [entry for entry in NAVIGATION if who.is_admin or not entry.admin]


def current_entry(path: str) -> str:
    """The path of the entry that an address belongs to; empty for none."""
    found = [e.path for e in NAVIGATION if path == e.path or path.startswith(e.path + "/")]
    return max(found, key=len, default="")
