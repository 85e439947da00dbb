"""Searchers whose trials go on from checkpoints: on growing shares of the input, or as a population."""
