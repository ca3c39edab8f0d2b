"""What was probably meant."""

from __future__ import annotations

from leasectl.text.wording import NO_POOLS, did_you_mean, option_meant


def test_the_nearest_is_suggested_and_how_to_see_all() -> None:
    known = ["azure--install", "aws--install"]
    assert did_you_mean("azure--instal", known).startswith('; did you mean "azure--install"? list')
    assert did_you_mean("gcp", known) == "; list them with: leasectl pool list"


def test_where_there_is_none_it_says_how_to_make_one() -> None:
    assert did_you_mean("T", []) == f"; {NO_POOLS}"


def test_an_option_of_another_tool_is_known_where_ours_is_there() -> None:
    assert option_meant("--timeout", ["--wait", "--type"]) == "--wait"
    assert option_meant("--timeout", ["--type"]) is None
    assert option_meant("--frobnicate", ["--wait"]) is None
