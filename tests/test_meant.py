from tradewind.meant import meant, nearest


def test_the_name_that_is_spelt_most_like_it() -> None:
    assert nearest("tradewnd", ["gp", "tradewind", "random"]) == "tradewind"
    assert nearest("zebra", ["gp", "tradewind"]) is None
    assert nearest("GP", ["gp", "tradewind"]) == "gp", "other capitals only"
    assert nearest("x", []) is None


def test_the_words_of_a_hint() -> None:
    assert meant("tradewnd", ["gp", "tradewind"], "installed:") == "did you mean 'tradewind'?"
    assert meant("zebra", iter(["gp", "tradewind"]), "installed:") == "installed: gp, tradewind"
    assert meant("zebra", [], "installed:") == "installed: none"
    assert meant("zebra", [], "known here:", "nothing") == "known here: nothing"
