"""The helper that waits for things, for which a test cannot be left to wait in vain."""

from pathlib import Path

import pytest
from tests.waiting import eventually


def test_what_was_found_is_returned() -> None:
    looks = iter([[], [], ["it"]])
    assert eventually(lambda: next(looks), pause=0.0) == ["it"]


@pytest.mark.slow
def test_what_never_comes_true_says_where_and_what_was_seen(tmp_path: Path) -> None:
    log = tmp_path / "engine.log"
    log.write_text("the engine gave up\n")
    with pytest.raises(AssertionError) as error:
        eventually(lambda: None, 0.0, log=log)
    assert "waited 0 s in vain for eventually(lambda: None, 0.0, log=log) (test_waiting.py:" in str(error.value)
    assert str(error.value).endswith("found None\nthe engine gave up")
    with pytest.raises(AssertionError, match="in vain for a daemon; found 0"):
        eventually(lambda: 0, 0.0, "a daemon")
