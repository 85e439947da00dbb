"""Offers of a space as columns: what a hundred thousand of them need to be quick and small."""
