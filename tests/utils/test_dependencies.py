"""Programs and packages of this machine that others have made."""

from __future__ import annotations

import logging
import shutil

import pytest

from tradewind.errors import MissingProgramError
from tradewind.utils.dependencies import find_program, optuna_log


def test_a_program_is_found_or_said_to_be_missing_with_how_to_get_it() -> None:
    assert find_program("sh", "apt-get install dash") == shutil.which("sh")
    with pytest.raises(MissingProgramError, match=r"there is no no-such-program program \(apt-get install it\)"):
        find_program("no-such-program", "apt-get install it")


def test_optunas_log_has_its_level_again_after_an_error_too() -> None:
    optuna = pytest.importorskip("optuna")
    before = optuna.logging.get_verbosity()
    with pytest.raises(ValueError, match="broke"), optuna_log(logging.CRITICAL):
        assert optuna.logging.get_verbosity() == logging.CRITICAL
        raise ValueError("it broke")
    assert optuna.logging.get_verbosity() == before
