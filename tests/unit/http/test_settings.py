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


def test_what_versions_without_etcd_wrote_is_read() -> None:
    assert parse_settings("/token\n/ca\ntrust") == Settings("/token", "/ca", True)
    assert parse_settings("\n/ca\n") == Settings(ca_file="/ca")


def test_versions_without_etcd_can_read_what_has_nothing_to_do_with_it() -> None:
    assert encode_settings(Settings("/token", "/ca", True)) == "/token\n/ca\ntrust"


@pytest.mark.parametrize("text", ["/token", "a\nb", "\n".join("abcdefgh")])
def test_what_no_version_wrote_is_refused(text: str) -> None:
    with pytest.raises(CorruptState, match="newer leasectl, or are damaged"):
        parse_settings(text)
