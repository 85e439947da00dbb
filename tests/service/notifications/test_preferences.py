"""What counts for one request, beside what its user wants of all."""

from __future__ import annotations

from typing import Any

import pytest

from tradewind.service.notifications.preferences import NotificationPreferences


@pytest.mark.parametrize(
    ("notify", "calls"),
    [
        ({}, ()),
        ({"email": False}, ()),
        ({"webhook": None}, ()),
        ({"webhook": "https://other.example.org/x"}, ("finished", "failed")),
    ],
)
def test_who_wants_no_calls_gets_none_unless_the_request_names_a_webhook(
    notify: dict[str, Any], calls: tuple[str, ...]
) -> None:
    preferences = NotificationPreferences(webhook="https://hook.example.org/x", calls=())
    assert preferences.of_request({"notify": notify}).calls == calls


def test_the_occasions_that_were_chosen_hold_for_a_webhook_of_the_request_too() -> None:
    preferences = NotificationPreferences(webhook="https://hook.example.org/x", calls=("submitted",))
    assert preferences.of_request({"notify": {"webhook": "https://other.example.org/x"}}).calls == ("submitted",)
