"""plugins.md and one page a kind: what each part can do, and its settings."""

from __future__ import annotations

import importlib
from typing import cast

from reference.text import docstring, first_line, page, table
from tradewind import plugins
from tradewind.cli.plugins import incompatibility_reasons, setting_rows
from tradewind.deployer import compatibility
from tradewind.deployer.provisioner.base import Provisioner
from tradewind.deployer.runner.base import Runner
from tradewind.plugins import KINDS, Capability, Plugin, group

BASES = {
    "searcher": "tradewind.searcher.base",
    "selector": "tradewind.selector.base",
    "catalogue": "tradewind.selector.catalogue.base",
    "provisioner": "tradewind.deployer.provisioner.base",
    "runner": "tradewind.deployer.runner.base",
    "interpreter": "tradewind.interpreter.base",
    "stopper": "tradewind.stopper.base",
    "callback": "tradewind.callback.base",
    "store": "tradewind.store.base",
    "planner": "tradewind.workflow.planner.base",
    "fairness": "tradewind.tenancy.fairness.base",
    "priority": "tradewind.tenancy.priority.base",
}
"""Where each kind's contract and its capabilities are."""

INTRO = """\
Everything that can be exchanged is a part: a class that an entry point announces. These are the parts that come with
Tradewind; `tradewind plugins` shows those of other packages too. A part is chosen in the job YAML by its name, `gp`, or
with settings, `{use: gp, starts: 3}`. [Extending](../guides/extending.md) shows how to add one."""


COMBINATIONS = """\
Provisioners make machines, runners run jobs on them. The table follows from what each says that it can do; `tradewind
plugins --matrix` shows it for all that is installed. What settings decide (an engine's address, hosts that are given or
missing) is checked when a study starts, before anything is spent."""


def write() -> dict[str, str]:
    """The pages by file name."""
    found = {kind: own_parts(kind) for kind in KINDS}
    rows = [
        [f"[`{kind}`](plugins/{kind}.md)", f"[`{name}`](plugins/{kind}.md#{name})", first_line(part)]
        for kind in KINDS
        for name, part in found[kind].items()
    ]
    matrices = [block for kind in KINDS if (block := _matrix(kind, found[kind]))]
    overview = table(["kind", "part", "what it does"], rows)
    index = page("Parts", INTRO, overview, _combinations(found), "## What each can do", *matrices)
    return {"plugins.md": index, **{f"plugins/{kind}.md": _kind_page(kind, found[kind]) for kind in KINDS}}


def own_parts(kind: str) -> dict[str, type[Plugin]]:
    """The parts of a kind that Tradewind itself brings, by name: the page must not depend on what else is installed."""
    return {
        name: plugins.load(kind, name) for name in plugins.names(kind) if plugins.origin(kind, name)[0] == "tradewind"
    }


def capabilities_of(kind: str) -> list[type[Capability]]:
    """The capabilities that the contract of a kind defines, and those of all kinds that its parts have, by name."""
    module = importlib.import_module(BASES[kind])
    here = [c for c in vars(module).values() if isinstance(c, type) and c.__module__ == module.__name__]
    own = [c for c in here if Capability in c.__bases__]
    parts = own_parts(kind).values()
    of_any_kind = (plugins.CallsNetwork, plugins.CallsProgram)
    own.extend(one for one in of_any_kind if any(issubclass(part, one) for part in parts))
    return sorted(own, key=lambda c: c.__name__)


def _matrix(kind: str, parts: dict[str, type[Plugin]]) -> str:
    wanted = capabilities_of(kind)
    if not wanted:
        return ""
    rows = [
        [f"`{name}`", *("yes" if c.__name__ in part.capabilities() else "" for c in wanted)]
        for name, part in parts.items()
    ]
    meanings = "\n".join(f"- `{c.__name__}`: {first_line(c)}" for c in wanted)
    return f"### {_several(kind)}\n\n{table([kind, *(f'`{c.__name__}`' for c in wanted)], rows)}\n\n{meanings}"


def _combinations(found: dict[str, dict[str, type[Plugin]]]) -> str:
    """Which provisioners and runners go together, from `tradewind.deployer.compatibility`."""
    provisioners = cast("dict[str, type[Provisioner]]", found["provisioner"])
    made = compatibility.compatibility_matrix(provisioners, cast("dict[str, type[Runner]]", found["runner"]))
    titles = ["runner", *(f"`{name}`" for name in provisioners)]
    rows = [[f"`{runner}`", *("" if row[name] else "yes" for name in provisioners)] for runner, row in made.items()]
    why = "\n".join(
        f"- {text}: {', '.join(f'`{pair}`' for pair in pairs)}" for text, pairs in incompatibility_reasons(made).items()
    )
    return f"## Which go together\n\n{COMBINATIONS}\n\n{table(titles, rows)}\n\nThe others do not:\n\n{why}"


def _several(kind: str) -> str:
    return group(kind).removeprefix("tradewind.").replace("_", " ").capitalize()


def _kind_page(kind: str, parts: dict[str, type[Plugin]]) -> str:
    base = importlib.import_module(BASES[kind])
    contract = getattr(base, kind.capitalize())
    return page(
        _several(kind),
        docstring(contract).partition("\n\n**Args**")[0],
        *(_section(name, part) for name, part in parts.items()),
    )


def _section(name: str, part: type[Plugin]) -> str:
    blocks = [f"## {name}", docstring(part).partition("\n\n**")[0]]
    if part.capabilities():
        blocks.append("Can: " + ", ".join(f"`{c}`" for c in part.capabilities()) + ".")
    rows = [
        [f"`{s.name}`", s.type, "required" if s.required else f"`{s.default}`", s.description]
        for s in setting_rows(part.Settings)
    ]
    blocks.append(table(["setting", "type", "default", "what it does"], rows) or "It has no settings.")
    return "\n\n".join(blocks)
