from __future__ import annotations

import pytest

from tradewind.deployer.runner.image_errors import image_fault
from tradewind.problem import Fault


@pytest.mark.parametrize(
    ("said", "fault"),
    [
        ("ErrImagePull: manifest unknown", Fault.PREREQUISITE),
        ("ImagePullBackOff Back-off pulling image 'a:b'", Fault.PREREQUISITE),
        ("InvalidImageName", Fault.PREREQUISITE),
        ("pull access denied for a", Fault.PREREQUISITE),
        ("unauthorized: authentication required", Fault.CREDENTIALS),
        ("toomanyrequests: rate limit", Fault.CAPACITY),
        ("dial tcp: lookup registry: no such host", Fault.INFRASTRUCTURE),
        ("no matching manifest for linux/arm64", Fault.ARCHITECTURE),
    ],
)
def test_an_image_that_is_nowhere_ends_the_search_and_a_registry_that_is_away_does_not(said: str, fault: Fault) -> None:
    assert image_fault(said, "a:b") is fault
