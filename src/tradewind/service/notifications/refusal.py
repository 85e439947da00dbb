"""A notice that its receiver did not take."""

from __future__ import annotations


class DeliveryRefused(Exception):  # noqa: N818  (it is an answer)
    """The receiver did not take a notice.

    Args:
        message: Why, in words.
        final: Whether it never will.
    """

    def __init__(self, message: str, *, final: bool) -> None:
        super().__init__(message)
        self.final = final
