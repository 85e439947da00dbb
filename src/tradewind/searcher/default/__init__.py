"""The default searcher."""

from tradewind.searcher.default.searcher import TradewindSearcher, TradewindSettings

__all__ = ["TradewindSearcher", "TradewindSettings"]
