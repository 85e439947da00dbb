"""Shows a shared cluster on the terminal: its state, tenants, shares and searches."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tradewind.store.clusters.cluster_store import taking_words
from tradewind.utils.units import count, format_bill, format_duration, format_memory, format_money

if TYPE_CHECKING:
    from rich.console import Group
    from rich.table import Table

_BAR = 20
_WIDE = 120
_SHORT = 10
"""Letters of a name that are shown, whatever else there is."""
_SENTENCE = 30
"""Columns of the terminal that the reason has at least, where it stands in the table."""
_NAMES = {"search": _SHORT, "tenant": _SHORT, "why": _SENTENCE}
"""Columns of a table of searches that are cut where there is no room; a figure that is cut is none."""
_SPARED = ("waits", "spent", "runs", "tenant")
"""Columns that are left out, in this order, where even short names find no room."""
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
        f"  {count(len(document.get('nodes', {})), 'node')}  ",
        "  ".join(
            f"{kind} {max(0.0, round(used[kind], 6)):.4g} of {amount:.4g}{' GiB' if kind == 'memory' else ''}"
            for kind, amount in total.items()
        ),
    )
    jobs = document.get("jobs", [])
    tenants = [{"tenant": name, **each} for name, each in document.get("tenants", {}).items()]
    takings = takings_lines(document.get("takings", ()), _TAKINGS)
    lines = sum(1 + len(line) // width for line in takings)
    room = None if height is None else max(3, height - len(tenants) - 8 - lines)
    parts: list[Any] = [head, Text(), shares_table(tenants, width), Text(), jobs_table(jobs[:room], width)]
    if room is not None and len(jobs) > room:
        parts.append(Text(f"and {len(jobs) - room} more: tradewind queue", style="bright_black"))
    parts += [Text(line, style="bright_black") for line in takings]
    return Group(*parts)


def shares_table(tenants: Sequence[Mapping[str, Any]], width: int = _WIDE) -> Table:
    """Make a table of the tenants: dominant shares as bars, with a mark at the share due by weight."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    rows = [
        {
            "tenant": str(each["tenant"]),
            "weight": f"{each['weight']:g}",
            "share": f"{each['share']:.0%}",
            "": "░" * _BAR,
            "running": str(each["running"]),
            "waiting": str(each["waiting"]),
            "CPU h": f"{each['usage'].get('cpu', 0.0) / 3600:.2f}",
        }
        for each in tenants
    ]
    columns = _widths(rows, width, {"tenant": _SHORT, "": 0}, ("CPU h", "waiting")) if rows else {}
    for name, room in columns.items():
        table.add_column(name, justify="left" if name in ("tenant", "") else "right", no_wrap=True, width=room)
    for each, row in zip(tenants, rows, strict=True):
        bar = columns.get("", 0)
        filled = round(each["share"] * bar)
        row[""] = "█" * filled + "░" * (bar - filled)
        table.add_row(*(Text(row[name], style="cyan" if name == "" else "") for name in columns))
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

    wide = width >= _WIDE
    rows = [_cells(job, wide=wide) for job in jobs]
    columns = _widths(rows, width, _NAMES, _SPARED) if rows else dict.fromkeys(_cells(_NO_JOB, wide=wide))
    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    for name, room in columns.items():
        left = name in (*_NAMES, "state")
        table.add_column(name, justify="left" if left else "right", no_wrap=name != "why", width=room)
    for row in rows:
        table.add_row(*(Text(row[name]) for name in columns))
    notes = [] if wide else [Padding(Text(f"{job['id']}: {why}"), (0, 0, 0, 2)) for job in jobs if (why := _why(job))]
    return Group(table, *notes)


_NO_JOB: Mapping[str, Any] = {"id": "", "tenant": "", "name": "", "state": "", "submitted": 0.0}
_GAP = 2
"""Blanks between two columns."""


def _cells(job: Mapping[str, Any], *, wide: bool) -> dict[str, str]:
    """The texts of a search's row, by the names of their columns."""
    best, unpaid = job.get("best"), job.get("simulated")
    money = job.get("spent") if unpaid is None else unpaid
    age = {"age": format_duration(time.time() - job["submitted"]), "why": _why(job)} if wide else {}
    return {
        "id": str(job["id"]),
        "tenant": str(job["tenant"]),
        "search": str(job["name"]),
        "state": str(job["state"]),
        "runs": str(job.get("running", "")),
        "waits": str(job.get("waiting", "")),
        "trials": _of(job.get("trials"), job.get("most"), job.get("usual")),
        "best": "" if best is None else format_bill(best) if job.get("metric") == "cost" else f"{best:.6g}",
        "spent": "" if money is None else format_money(money) + ("" if unpaid is None else ", simulated"),
        **age,
    }


def _widths(
    rows: Sequence[Mapping[str, str]], width: int, elastic: Mapping[str, int], spared: Sequence[str]
) -> dict[str, int]:
    """The columns that a table has on a terminal, and how wide each of them is.

    Args:
        rows: The texts of each row, by the names of their columns.
        width: Columns of the terminal.
        elastic: The columns that may be cut, and to which width; the first of them gets what is left.
        spared: The columns that are left out, in this order, where that is not enough.
    """
    from rich.cells import cell_len

    widths = {name: max(len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    for dropped in (None, *spared):
        if dropped is not None:
            widths.pop(dropped, None)
        least = {name: min(room, widths[name]) for name, room in elastic.items() if name in widths}
        free = width - sum({**widths, **least}.values()) - _GAP * (len(widths) - 1)
        if free >= 0:
            break
    for name, room in least.items():
        more = min(max(0, free), widths[name] - room)
        widths[name], free = room + more, free - more
    return {name: room for name, room in widths.items() if room}


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


def tenants_table(rows: Sequence[Mapping[str, Any]], width: int = _WIDE) -> Table:
    """Make a table of the usage and the bills of tenants (`tradewind.tenancy.billing.tenant_bills`)."""
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, _GAP, 0, 0), pad_edge=False, header_style="bold")
    cells = [_tenant_cells(row) for row in rows]
    columns = _widths(cells, width, {"tenant": _SHORT, "quota": _SHORT}, _TENANT_SPARED) if cells else {}
    for name, room in columns.items():
        left = name in ("tenant", "quota")
        table.add_column(name, justify="left" if left else "right", no_wrap=not left, overflow="fold", width=room)
    for row in cells:
        table.add_row(*(Text(row[name]) for name in columns))
    return table


_TENANT_SPARED = ("GiB h", "priority", "requests", "searches", "runs")
"""Columns of a table of tenants that are left out, in this order, where the others find no room."""


def _tenant_cells(row: Mapping[str, Any]) -> dict[str, str]:
    quota = ", ".join(
        f"{kind} {format_memory(amount * 2**30) if kind == 'memory' else f'{amount:g}'}"
        for kind, amount in row["quota"].items()
    )
    hours = {kind: amount / 3600 for kind, amount in row["seconds"].items()}
    return {
        "tenant": str(row["tenant"]),
        "weight": f"{row['weight']:g}",
        "priority": str(row["priority"]),
        "quota": quota or "none",
        "searches": str(row["searches"]),
        "requests": str(row["requests"]),
        "runs": str(row["runs"]),
        "CPU h": f"{hours.get('cpu', 0.0):.3f}",
        "GiB h": f"{hours.get('memory', 0.0):.3f}",
        "spent": format_money(row["dollars"]),
    }


def _of(count: int | None, most: int | None, usual: Mapping[str, Any] | None) -> str:
    """A count with its limit, and with the usual number where searches like it have ended before."""
    ends = [] if most is None else [str(most)]
    ends += [] if usual is None else [f"~{usual['results']:.0f}"]
    return "" if count is None and not ends else "/".join([str(count or 0), *ends])
