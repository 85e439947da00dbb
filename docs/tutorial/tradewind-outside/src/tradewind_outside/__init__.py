"""A searcher and an interpreter for Tradewind, from outside."""
