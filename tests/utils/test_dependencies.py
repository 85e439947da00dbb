"""Programs of this machine that others have made."""

from __future__ import annotations

import shutil

import pytest

from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import find_program


def test_a_program_is_found_or_said_to_be_missing_with_how_to_get_it() -> None:
    assert find_program("sh", "apt-get install dash") == shutil.which("sh")
    with pytest.raises(MissingProgramError, match=r"there is no no-such-program program \(apt-get install it\)"):
        find_program("no-such-program", "apt-get install it")
