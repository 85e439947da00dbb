"""OBOL: Bayesian optimisation with bagged random trees that looks several paid runs ahead, within a budget."""

from tradewind.searcher.obol.searcher import ObolSearcher
from tradewind.searcher.obol.settings import ObolSettings

__all__ = ["ObolSearcher", "ObolSettings"]
