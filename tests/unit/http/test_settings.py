"""What a handle's record keeps of how to talk to a server."""

from __future__ import annotations

import pytest

from leasectl.errors import CorruptState
from leasectl.http.settings import Settings, encode_settings, parse_settings

ALL = Settings("/token", "/ca", True, "/cert", "/key", "/user")


@pytest.mark.parametrize(
    "settings",
    [
        Settings(),
        ALL,
        Settings(trust_env=True),
        Settings(user_file="/user"),
        Settings(cert_file="/cert"),
        Settings(ca_file="/ca", key_file="/key"),
        Settings(cluster='{"server":"https://there"}'),
        ALL._replace(cluster="{}"),
    ],
)
def test_what_is_written_is_read_back(settings: Settings) -> None:
    assert parse_settings(encode_settings(settings)) == settings


def test_the_text_names_what_is_not_the_default() -> None:
    settings = Settings(ca_file="/a=b", trust_env=True)
    assert encode_settings(settings) == "ca_file=/a=b\ntrust_env=1"


@pytest.mark.parametrize("text", ["/token", "a\nb", "colour=red", "ca_file=", "ca_file=/ca\n"])
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(CorruptState, match="newer leasectl, or are damaged"):
        parse_settings(text)
