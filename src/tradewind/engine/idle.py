"""Which of many studies have nothing that could be ended or given back; one look at each provider tells of all."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

from tradewind.engine.cleanup.orphan_reaper import OrphanReaper
from tradewind.store.base import Store, StudyRow


def idle_studies(store: Store, studies: Sequence[StudyRow], data_folder: Path) -> set[int]:
    """Studies of which nothing is there, here or at a provider.

    Each part that one of them names is asked once for what is there of all owners, which for thousands of studies is
    quicker than to ask for each. Then, and not before, the store is asked for open runs and for who holds a study: a
    row is written before anything is made, so that what came after the look is among those. A study is not idle, and
    has to be ended for itself, if a process holds it, if it has open runs or results to be uploaded, if anything with
    its tag or with a run's name of it was found, or if one of its parts could not be made or asked.

    Args:
        store: Where they are kept.
        studies: The studies.
        data_folder: Where parts keep what they need between processes.

    Returns:
        Their ids.
    """
    with contextlib.closing(OrphanReaper(store, data_folder, studies=studies)) as yard:
        tags, asked = yard.tags(), yard.asked()
    busy = store.open_studies() | {line.id for line in store.list_studies() if line.holder}
    return {
        study.id
        for study in studies
        if study.id in asked
        and study.id not in busy
        and study.owner
        and study.owner not in tags
        and not any((data_folder / "uploads" / study.owner).glob("*"))
    }
