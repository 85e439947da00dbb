"""The default searcher, `tradewind`: Bayesian optimisation that weighs savings against spending."""

from tradewind.searcher.default.searcher import TradewindSearcher, TradewindSettings

__all__ = ["TradewindSearcher", "TradewindSettings"]
