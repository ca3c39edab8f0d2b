"""What is shown to a server, and that it is read again when it has changed or isn't taken."""

from __future__ import annotations

import base64
import json
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from leasectl.engines.kubernetes.api.address import leases
from leasectl.engines.kubernetes.api.choice import ClusterChoice
from leasectl.engines.kubernetes.api.requests import Api
from leasectl.errors import AccessRefused, BackendUnreachable
from leasectl.system.clock import Clock
from tests.kit.certificates import Certificate, Certificates, make_certificates
from tests.unit.engines.kubernetes.api.conftest import Script
from tests.unit.engines.kubernetes.api.scripted import (
    Said,
    Scripted,
    api_of,
    status,
    write_kubeconfig,
)

HERE = leases("ns")
LISTED = Said(body={"items": [], "metadata": {"resourceVersion": "1"}})
REFUSED = status(401, "Unauthorized", "Unauthorized")
Config = Callable[..., Path]


def replace(path: Path, text: str) -> None:
    """As those who rotate do it: another file takes the place."""
    fresh = path.with_suffix(".new")
    fresh.write_text(text)
    os.replace(fresh, path)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Writes a kubeconfig, the same one each time."""

    def write(server: Scripted, user: object = None, **cluster: Any) -> Path:
        return write_kubeconfig(tmp_path / "config", server.url, user, **cluster)

    return write


def shown(server: Scripted) -> list[str]:
    return [each.headers.get("authorization", "") for each in server.asked]


class TestTokens:
    def test_one_in_a_file_is_read_when_it_changes(
        self, script: Script, config: Config, tmp_path: Path
    ) -> None:
        server = script(LISTED)
        (tmp_path / "token").write_text("one\n")
        api = api_of(config(server, {"tokenFile": "token", "token": "less"}))
        api.list(HERE)
        replace(tmp_path / "token", "two\n")
        api.list(HERE)
        assert shown(server) == ["Bearer one", "Bearer two"]
        assert server.connections == 1

    def test_while_there_is_none_the_last_one_is_shown(
        self, script: Script, config: Config, tmp_path: Path
    ) -> None:
        server = script(LISTED)
        (tmp_path / "token").write_text("one\n")
        api = api_of(config(server, {"tokenFile": "token"}))
        api.list(HERE)
        (tmp_path / "token").unlink()
        api.list(HERE)
        (tmp_path / "token").write_text("")
        api.list(HERE)
        assert shown(server) == ["Bearer one"] * 3

    def test_one_that_is_refused_is_read_again_once(self, script: Script, config: Config) -> None:
        server = script(LISTED, REFUSED, LISTED)
        path = config(server, {"token": "old"})
        api = api_of(path)
        api.list(HERE)
        stamp = path.stat()
        config(server, {"token": "new"})
        # As if it hadn't changed: by a clock that is coarse, or a file system that caches.
        os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        api.list(HERE)
        assert shown(server) == ["Bearer old", "Bearer old", "Bearer new"]

    def test_the_same_one_is_not_shown_twice(self, script: Script, config: Config) -> None:
        server = script(REFUSED)
        with pytest.raises(AccessRefused) as raised:
            api_of(config(server)).list(HERE)
        assert raised.value.exit_code == 77
        said = str(raised.value)
        assert f"{server.url} rejects the credentials (401: Unauthorized): the token" in said
        assert "name another kubeconfig in LEASECTL_KUBECONFIG" in said
        assert len(server.asked) == 1

    def test_a_write_is_made_again_with_the_new_one(self, script: Script, config: Config) -> None:
        server = script(REFUSED, Said(201, {}))
        api = api_of(config(server, plugin()))
        api.create(HERE, {})
        assert len(server.asked) == 2
        first, second = shown(server)
        assert first != second

    def test_two_that_are_refused_are_the_end(self, script: Script, config: Config) -> None:
        server = script(REFUSED)
        with pytest.raises(AccessRefused, match=r"what exec of user .* printed has expired"):
            api_of(config(server, plugin())).list(HERE)
        assert len(server.asked) == 2

    def test_those_of_a_pod_are_read_from_where_it_has_them(
        self, script: Script, tmp_path: Path, certificates: Certificates
    ) -> None:
        server = script(LISTED, context=server_side(certificates.server))
        (tmp_path / "token").write_text("one\n")
        (tmp_path / "ca.crt").write_bytes(Path(certificates.ca.file).read_bytes())
        choice = ClusterChoice("pod", "ns", server.url, service_account=str(tmp_path))
        api = Api(choice, clock=Clock())
        api.list(HERE)
        replace(tmp_path / "token", "two\n")
        api.list(HERE)
        assert shown(server) == ["Bearer one", "Bearer two"]

    def test_who_has_none_shows_none(self, script: Script, config: Config) -> None:
        server = script(LISTED)
        api_of(config(server, {})).list(HERE)
        assert shown(server) == [""]


def plugin() -> dict[str, Any]:
    """A program that prints another token each time."""
    version = "client.authentication.k8s.io/v1"
    said = {"kind": "ExecCredential", "apiVersion": version, "status": {"token": "tPID"}}
    script = f"echo '{json.dumps(said)}' | sed s/PID/$$/"
    return {"exec": {"apiVersion": version, "command": "sh", "args": ["-c", script]}}


class TestOtherClusters:
    def test_one_that_its_context_means_by_now_is_not_asked(
        self, script: Script, config: Config
    ) -> None:
        ours, other = script(LISTED), script(LISTED)
        api = api_of(config(ours))
        config(other)
        with pytest.raises(AccessRefused) as raised:
            api.list(HERE)
        assert raised.value.exit_code == 77
        assert f"now names {other.url}; restore the entry for {ours.url}" in str(raised.value)
        assert other.asked == []

    def test_a_kubeconfig_that_is_gone_is_to_be_put_back(
        self, script: Script, config: Config
    ) -> None:
        path = config(script(LISTED))
        api = api_of(path)
        path.unlink()
        with pytest.raises(AccessRefused, match="restore the kubeconfig that named the cluster"):
            api.list(HERE)

    def test_who_has_begun_goes_on_at_the_first(self, script: Script, config: Config) -> None:
        ours, other = script(LISTED), script(LISTED)
        api = api_of(config(ours))
        api.list(HERE)
        config(other)
        api.list(HERE)
        assert (len(ours.asked), other.asked) == (2, [])


def server_side(shown: Certificate, ca: str | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*shown)
    if ca is not None:
        context.load_verify_locations(ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def inline(path: str) -> str:
    return base64.b64encode(Path(path).read_bytes()).decode()


class TestTls:
    @pytest.mark.parametrize("is_inline", [True, False])
    def test_certificates_are_shown_wherever_they_are(
        self, is_inline: bool, script: Script, config: Config, certificates: Certificates
    ) -> None:
        ca, client = certificates.ca.file, certificates.client
        server = script(LISTED, context=server_side(certificates.server, ca))
        if is_inline:
            user = {
                "client-certificate-data": inline(client.file),
                "client-key-data": inline(client.key_file),
            }
            trusted = {"certificate-authority-data": inline(ca)}
        else:
            user = {"client-certificate": client.file, "client-key": client.key_file}
            trusted = {"certificate-authority": ca}
        api = api_of(config(server, user, **trusted))
        for _ in range(3):
            api.list(HERE)
        assert server.connections == 1

    def test_another_certificate_is_shown_when_its_file_changes(
        self, script: Script, config: Config, certificates: Certificates, tmp_path: Path
    ) -> None:
        server = script(LISTED, context=server_side(certificates.server, certificates.ca.file))
        certificate, key = tmp_path / "cert", tmp_path / "key"
        certificate.write_bytes(Path(certificates.client.file).read_bytes())
        key.write_bytes(Path(certificates.client.key_file).read_bytes())
        user = {"client-certificate": "cert", "client-key": "key"}
        api = api_of(config(server, user, **{"certificate-authority": certificates.ca.file}))
        api.list(HERE)
        other = certificates.server
        replace(certificate, Path(other.file).read_text())
        api.list(HERE)  # they don't fit each other: the last ones that did
        assert server.connections == 1
        replace(key, Path(other.key_file).read_text())
        api.list(HERE)
        assert server.connections == 2

    def test_a_server_of_another_ca_is_refused_with_what_has_to_have_it(
        self, script: Script, config: Config, certificates: Certificates, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir()
        other = make_certificates(tmp_path / "other")
        server = script(LISTED, context=server_side(certificates.server))
        path = config(server, **{"certificate-authority": other.ca.file})
        with pytest.raises(AccessRefused) as raised:
            api_of(path).list(HERE)
        assert raised.value.exit_code == 77
        assert "its certificate isn't trusted" in str(raised.value)
        assert f'certificate-authority in context "x" in {path} must be' in str(raised.value)

    def test_a_ca_that_was_replaced_is_read_again(
        self, script: Script, config: Config, certificates: Certificates, tmp_path: Path
    ) -> None:
        (tmp_path / "other").mkdir()
        ca = tmp_path / "ca"
        ca.write_bytes(Path(make_certificates(tmp_path / "other").ca.file).read_bytes())
        server = script(LISTED, context=server_side(certificates.server))
        api = api_of(config(server, **{"certificate-authority": "ca"}))
        with pytest.raises(AccessRefused):
            api.list(HERE)
        replace(ca, Path(certificates.ca.file).read_text())
        api.list(HERE)

    def test_a_name_that_it_has_may_be_given(
        self, script: Script, config: Config, certificates: Certificates
    ) -> None:
        server = script(LISTED, context=server_side(certificates.server))
        by_name = server.url.replace("127.0.0.1", "localhost")
        path = config(server, **{"certificate-authority": certificates.ca.file})
        path.write_text(path.read_text().replace(server.url, by_name))
        with pytest.raises(AccessRefused, match="set tls-server-name in context "):
            api_of(path).list(HERE)
        named = json.loads(path.read_text())
        named["clusters"][0]["cluster"]["tls-server-name"] = "127.0.0.1"
        path.write_text(json.dumps(named))
        api_of(path).list(HERE)


def test_who_to_be_there_is_sent(script: Script, config: Config) -> None:
    server = script(LISTED)
    user = {"token": "t", "as": "bob", "as-uid": "7", "as-groups": ["a", "b c"]}
    api_of(config(server, user)).list(HERE)
    (asked,) = server.asked
    assert asked.headers["impersonate-user"] == "bob"
    assert asked.headers["impersonate-uid"] == "7"
    assert asked.groups == ("a", "b c")


class TestProxies:
    def test_one_is_gone_through(self, script: Script, config: Config) -> None:
        proxy = script(LISTED)
        there = script(LISTED)
        there.url = "http://cluster.invalid"
        api_of(config(there, **{"proxy-url": proxy.url})).list(HERE)
        (asked,) = proxy.asked
        assert asked.headers["host"] == "cluster.invalid"

    def test_of_one_that_is_not_there_no_password_is_shown(
        self, script: Script, config: Config
    ) -> None:
        proxy = script(LISTED)
        proxy.close()
        url = proxy.url.replace("http://", "http://me:s3cret@")
        api: Api = api_of(config(script(LISTED), **{"proxy-url": url}), deadline_seconds=0.2)
        with pytest.raises(BackendUnreachable) as raised:
            api.list(HERE)
        assert f"by way of {proxy.url} within" in str(raised.value)
        assert "s3cret" not in str(raised.value)

    def test_it_sends_nobody_elsewhere_with_a_token(self, script: Script, config: Config) -> None:
        other, there = script(LISTED), script(LISTED)
        proxy = script(Said(302, "", (("Location", f"{other.url}/x"),)))
        there.url = "http://cluster.invalid"
        with pytest.raises(BackendUnreachable, match="answered 302"):
            api_of(config(there, **{"proxy-url": proxy.url})).list(HERE)
        assert other.asked == []
