"""Shows a shared cluster on the terminal: its state, tenants, shares and searches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.store.clusters.cluster_store import taking_words
from tradewind.utils.units import count, format_bill, format_duration, format_money

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_BAR = 20
_WIDE = 120
_TAKINGS = 3


def screen(document: Mapping[str, Any], width: int, height: int | None = None) -> Group:
    """Lay out the whole cluster: its state, the tenants with their shares, and the searches.

    Args:
        document: A `tradewind.tenancy.shared_cluster.cluster_snapshot`, with ``name``, ``settings``, ``holder`` and
            ``age``.
        width: Columns of the terminal.
        height: Lines of the terminal; searches that do not fit are only counted. None for no limit.
    """
    from rich.console import Group
    from rich.text import Text

    total = document.get("total", {})
    used: dict[str, float] = dict.fromkeys(total, 0.0)
    for node in document.get("nodes", {}).values():
        for kind, amount in node["has"].items():
            used[kind] = used.get(kind, 0.0) + amount - node["free"].get(kind, 0.0)
    settings = document.get("settings", {})
    state = "running" if document.get("holder") else "not running"
    head = Text.assemble(
        (f"cluster {document['name']}", "bold"),
        f"  {settings.get('engine', '')}, {settings.get('fairness', '')}, {settings.get('priority', '')}  ",
        (state, "green" if document.get("holder") else "red"),
        f"  {len(document.get('nodes', {}))} nodes  ",
        "  ".join(f"{kind} {max(0.0, round(used[kind], 6)):.4g} of {amount:.4g}" for kind, amount in total.items()),
    )
    jobs = document.get("jobs", [])
    tenants = [{"tenant": name, **each} for name, each in document.get("tenants", {}).items()]
    takings = takings_lines(document.get("takings", ()), _TAKINGS)
    lines = sum(1 + len(line) // width for line in takings)
    room = None if height is None else max(3, height - len(tenants) - 8 - lines)
    parts: list[Any] = [head, Text(), shares_table(tenants), Text(), jobs_table(jobs[:room], width)]
    if room is not None and len(jobs) > room:
        parts.append(Text(f"and {len(jobs) - room} more: tradewind queue", style="bright_black"))
    parts += [Text(line, style="bright_black") for line in takings]
    return Group(*parts)


def shares_table(tenants: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of the tenants: dominant shares as bars, with a mark at the share due by weight."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tenant", "weight", "share", "", "running", "waiting", "CPU h"):
        table.add_column(name, justify="left" if name in ("tenant", "") else "right", no_wrap=True)
    for each in tenants:
        filled = round(each["share"] * _BAR)
        table.add_row(
            Text(str(each["tenant"])),
            f"{each['weight']:g}",
            f"{each['share']:.0%}",
            Text("█" * filled + "░" * (_BAR - filled), style="cyan"),
            str(each["running"]),
            str(each["waiting"]),
            f"{each['usage'].get('cpu', 0.0) / 3600:.2f}",
        )
    return table


def jobs_table(jobs: Sequence[Mapping[str, Any]], width: int) -> Group:
    """Make a table of the searches: progress, the best result so far, and what each waits for.

    On a narrow terminal the last stands below the table, by the searches' numbers: a column of few letters cannot be
    read.
    """
    from rich.console import Group
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    wide = width >= _WIDE
    names = ["id", "tenant", "search", "state", "runs", "waits", "trials", "best", "spent"]
    for name in (*names, *(["age", "why"] if wide else [])):
        left = name in ("tenant", "search", "state", "why")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "why", overflow="ellipsis")
    now = time.time()
    for job in jobs:
        best = job.get("best")
        money = job.get("spent")
        row = [
            str(job["id"]),
            str(job["tenant"]),
            str(job["name"]),
            str(job["state"]),
            str(job.get("running", "")),
            str(job.get("waiting", "")),
            _of(job.get("trials"), job.get("most"), job.get("usual")),
            "" if best is None else format_bill(best) if job.get("metric") == "cost" else f"{best:.6g}",
            "" if money is None else format_money(money),
            *([format_duration(now - job["submitted"]), _why(job)] if wide else []),
        ]
        table.add_row(*(Text(cell) for cell in row))
    notes = [] if wide else [Padding(Text(f"{job['id']}: {why}"), (0, 0, 0, 2)) for job in jobs if (why := _why(job))]
    return Group(table, *notes)


def _why(job: Mapping[str, Any]) -> str:
    words = [str(job.get("reason") or job.get("why") or ""), str(job.get("trouble", ""))]
    if taken := job.get("taken"):
        at = time.strftime("%H:%M:%S", time.localtime(taken["at"]))
        words.append(f"{count(taken['runs'], 'run')} taken, the last for tenant {taken['tenant']} at {at}")
    return "; ".join(word for word in words if word)


def takings_lines(takings: Sequence[Mapping[str, Any]], most: int) -> list[str]:
    """Lines on the runs that were taken last, the newest first: when, whose, for whom, why and who pays.

    Args:
        takings: Those of a cluster's snapshot.
        most: So many lines at most.
    """
    newest = sorted(takings, key=lambda each: -float(each["at"]))[:most]
    return [f"{time.strftime('%H:%M:%S', time.localtime(each['at']))} {taking_words(each)}." for each in newest]


def tenants_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Make a table of the usage and the bills of tenants (`tradewind.tenancy.billing.tenant_bills`)."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("tenant", "weight", "priority", "quota", "searches", "requests", "runs", "CPU h", "GiB h", "spent"):
        table.add_column(name, justify="left" if name in ("tenant", "quota") else "right")
    for row in rows:
        quota = ", ".join(f"{kind} {amount:g}" for kind, amount in row["quota"].items())
        hours = {kind: amount / 3600 for kind, amount in row["seconds"].items()}
        table.add_row(
            Text(row["tenant"]),
            f"{row['weight']:g}",
            str(row["priority"]),
            Text(quota or "none"),
            str(row["searches"]),
            str(row["requests"]),
            str(row["runs"]),
            f"{hours.get('cpu', 0.0):.3f}",
            f"{hours.get('memory', 0.0):.3f}",
            format_money(row["dollars"]),
        )
    return table


def _of(count: int | None, most: int | None, usual: Mapping[str, Any] | None) -> str:
    """A count with its limit, and with the usual number where searches like it have ended before."""
    ends = [] if most is None else [str(most)]
    ends += [] if usual is None else [f"~{usual['results']:.0f}"]
    return "" if count is None and not ends else "/".join([str(count or 0), *ends])
