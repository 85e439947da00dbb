"""Offers of the catalogues, all at once and by column, so that a page filters them as one types."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tradewind.service.accounts.identity import Principal

if TYPE_CHECKING:
    from tradewind.problem import Offer

_WORDS = ("provider", "region", "instance_type", "category", "family", "arch", "price_date")
_NUMBERS = ("vcpu", "memory_gib", "gpus", "price_per_hour")


class OfferService:
    """Offers of all installed catalogues, with refreshed prices where there are some.

    Args:
        data_folder: Folder with refreshed prices.
    """

    def __init__(self, data_folder: Path) -> None:
        self._data_folder = data_folder
        self._lock = threading.Lock()
        self._kept: tuple[Any, str, bytes] | None = None

    def all(self, who: Principal) -> dict[str, Any]:
        """Return all offers, the cheapest first: see `all_json`."""
        document: dict[str, Any] = json.loads(self.all_json(who)[1])
        return document

    def all_json(self, _who: Principal) -> tuple[str, bytes]:
        """Return all offers as JSON, the cheapest first, and a text that changes whenever they do.

        Prices are public: all who have signed in see the same. ``total`` says how many there are; ``columns`` has
        ``provider``, ``region``, ``instance_type``, ``category``, ``family``, ``arch``, ``price_date``,
        ``accelerator`` (as ``{"words": [...], "codes": [...]}``), ``vcpu``, ``memory_gib``, ``gpus``,
        ``price_per_hour`` (USD per hour), ``spot`` and ``interruptions_per_hour`` (null where it is unknown), one node
        each.

        Raises:
            CatalogueError: The file of refreshed prices is damaged.
        """
        stamp = self._stamp()
        with self._lock:
            if self._kept is None or self._kept[0] != stamp:
                body = json.dumps(self._document(), separators=(",", ":"), allow_nan=False).encode()
                self._kept = (stamp, hashlib.blake2b(body, digest_size=8).hexdigest(), body)
            return self._kept[1], self._kept[2]

    def find(self, _who: Principal, **bounds: Any) -> list[Offer]:
        """Find the offers within bounds, the cheapest first.

        Args:
            bounds: Bounds as in `tradewind.problem.OfferQuery`.

        Raises:
            PluginError: There is no such provider.
            CatalogueError: The file of refreshed prices is damaged.
        """
        from tradewind.problem import OfferQuery
        from tradewind.selector.offer_search import find_offers

        limit = bounds.pop("limit", None)  # of a page; that of a query keeps a choice of all providers
        return find_offers(OfferQuery(**bounds), self._data_folder)[:limit]

    def _stamp(self) -> Any:
        """Make a text that changes whenever a refreshed price list does."""
        folder = self._data_folder / "prices"
        try:
            return sorted((file.name, file.stat().st_mtime_ns) for file in folder.iterdir())
        except OSError:
            return []

    def _document(self) -> dict[str, Any]:
        from tradewind.problem import OfferQuery
        from tradewind.reporting.study.documents import coded
        from tradewind.selector.offer_search import find_offers

        anything: tuple[float, None] = (0.0, None)
        found = find_offers(OfferQuery(spot=None, gpus=anything), self._data_folder)
        columns: dict[str, Any] = {name: coded([getattr(offer, name) for offer in found]) for name in _WORDS}
        columns |= {name: [getattr(offer, name) for offer in found] for name in _NUMBERS}
        columns["spot"] = [offer.spot for offer in found]
        columns["interruptions_per_hour"] = [offer.interruptions_per_hour for offer in found]
        columns["accelerator"] = coded([str(offer.facts.get("accelerator", "")) for offer in found])
        return {"total": len(found), "columns": columns}
