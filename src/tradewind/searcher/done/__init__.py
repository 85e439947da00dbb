"""DONE: a random Fourier expansion of the time over job parameters and configuration, from all earlier runs."""

from tradewind.searcher.done.searcher import DoneSearcher
from tradewind.searcher.done.settings import DoneSettings

__all__ = ["DoneSearcher", "DoneSettings"]
