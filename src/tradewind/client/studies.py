"""Calls about studies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from tradewind.client.models import StudyInfo
from tradewind.client.transport import ApiCalls, plain


class StudyCalls(ApiCalls):
    """Studies."""

    def studies(
        self, *, states: Sequence[str] = (), text: str = "", single_runs: bool = False, limit: int | None = None
    ) -> Iterator[StudyInfo]:
        """Studies, the newest first; pages are fetched as you go on.

        Args:
            states: Only in these: ``running``, ``stopped``, ``finished``, ``interrupted``.
            text: Only with this in the name.
            single_runs: Also those of requests for a single run, which have one trial each.
            limit: So many at most.
        """
        given = plain({"state": list(states), "text": text, "single_runs": single_runs or None})
        return (StudyInfo.from_json(one) for one in self._pages("/studies", given, limit))

    def study(self, number: int) -> StudyInfo:
        """One study.

        Raises:
            NotFoundError: There is none that you may see.
        """
        return StudyInfo.from_json(self._get(f"/studies/{int(number)}"))

    def trials(self, study: int) -> dict[str, Any]:
        """The trials of a study, by column.

        Raises:
            NotFoundError: There is no such study that you may see.
        """
        found: dict[str, Any] = self._get(f"/studies/{int(study)}/trials")
        return found
