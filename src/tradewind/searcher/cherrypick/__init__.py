"""CherryPick (Alipourfard et al., NSDI 2017): Bayesian optimisation of the cost under a deadline, with a stop rule."""

from tradewind.searcher.cherrypick.searcher import CherryPickSearcher, CherryPickSettings

__all__ = ["CherryPickSearcher", "CherryPickSettings"]
