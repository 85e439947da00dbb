from tradewind.utils.suggestions import closest_match, did_you_mean


def test_the_name_that_is_spelt_most_like_it() -> None:
    assert closest_match("tradewnd", ["gp", "tradewind", "random"]) == "tradewind"
    assert closest_match("zebra", ["gp", "tradewind"]) is None
    assert closest_match("GP", ["gp", "tradewind"]) == "gp", "other capitals only"
    assert closest_match("x", []) is None


def test_the_words_of_a_hint() -> None:
    assert did_you_mean("tradewnd", ["gp", "tradewind"], "installed:") == "did you mean 'tradewind'?"
    assert did_you_mean("zebra", iter(["gp", "tradewind"]), "installed:") == "installed: gp, tradewind"
    assert did_you_mean("zebra", [], "installed:") == "installed: none"
    assert did_you_mean("zebra", [], "known here:", "nothing") == "known here: nothing"
