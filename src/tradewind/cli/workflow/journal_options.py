"""The journal of ``tradewind workflow run``: in which store it is, or in the run's folder."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from tradewind.cli.workflow.machines import MachineSource
    from tradewind.workflow.execution.journal import RunJournal
    from tradewind.workflow.execution.options import ExecutionOptions
    from tradewind.workflow.files import Plan

_Store = Annotated[str | None, typer.Option("--store", help="Address of the store.", metavar="URL", show_default=False)]
_NoStore = Annotated[
    bool,
    typer.Option(
        "--no-store", help="Keep the journal in the folder: tradewind status and the like do not see the run."
    ),
]
_Fresh = Annotated[bool, typer.Option("--fresh", help="Begin anew, whatever has been done in the folder.")]
_Dismiss = Annotated[
    bool, typer.Option("--dismiss", help="End machines that an earlier command has left elsewhere; rerun their tasks.")
]


@dataclass(frozen=True, slots=True)
class JournalOptions:
    """Options for what is kept of the run, and what becomes of an earlier one in the folder."""

    fresh: _Fresh = False
    dismiss: _Dismiss = False
    store: _Store = None
    no_store: _NoStore = False

    def journal(self, plan: Plan, place: Path, source: MachineSource, options: ExecutionOptions) -> RunJournal | None:
        """Open the journal in the store; None for one in the folder.

        A job that is itself run by Tradewind keeps it in the folder: what it leaves is collected with its files, and
        the store of its machine is not the user's.

        Raises:
            InputError: Both were given.
            StudyBusyError: Another process carries the run out.
            StoreError: The store cannot be opened.
        """
        import os

        from tradewind.errors import InputError
        from tradewind.utils.paths import store_url
        from tradewind.workflow.execution.run_folder import WorkflowRunFolder
        from tradewind.workflow.execution.stored.store_journal import RunnerChoice, StoreJournal

        if self.no_store and self.store is not None:
            raise InputError("--store and --no-store do not go together", hint="leave one out")
        if self.no_store or (self.store is None and "TRADEWIND_RUN_ID" in os.environ):
            return None
        runner, made = (
            RunnerChoice(part.name, part.settings.model_dump(mode="json", exclude_defaults=True), part.data_folder)
            for part in (source.runner, source.provisioner)
        )
        facts = {"inputs": str(options.inputs), "scale": options.scale, "provisioner": made.document()}
        return StoreJournal(
            self.store or store_url(), plan, WorkflowRunFolder(place), runner, lenient=self.fresh, **facts
        )
