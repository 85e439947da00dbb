"""Completions that a shell offers after a Tab: names of studies and of parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import typer


def studies(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of studies in the store that the command line, or the environment, names."""
    from tradewind.store.studies.study_names import study_names_starting_with
    from tradewind.utils.paths import store_url

    return study_names_starting_with(ctx.params.get("store") or store_url(), incomplete)


def parts(kind: str) -> Callable[[str], list[str]]:
    """Make the completion for the names of the parts of a kind.

    Args:
        kind: As `tradewind.plugins.names` takes it.
    """

    def named(incomplete: str) -> list[str]:
        from tradewind import plugins

        return [name for name in plugins.names(kind) if name.startswith(incomplete)]

    return named


def any_part(ctx: typer.Context, incomplete: str) -> list[str]:
    """Names of the parts of the kind that the command line names, or of all kinds."""
    from tradewind import plugins

    wanted: Any = ctx.params.get("kind")
    kinds = [wanted] if wanted in plugins.KINDS else list(plugins.KINDS)
    return sorted({name for kind in kinds for name in parts(kind)(incomplete)})


def kinds(incomplete: str) -> list[str]:
    """Kinds of part."""
    from tradewind import plugins

    return [kind for kind in plugins.KINDS if kind.startswith(incomplete)]
