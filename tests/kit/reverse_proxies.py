"""nginx and Caddy in front of a server, with TLS, as `docs/serve-deploy.md` configures them."""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.certificates import Certificates
from tests.kit.waits import end_of, eventually

_DOCUMENT = Path(__file__).parents[2] / "docs" / "serve-deploy.md"
# What the documentation has in its place.
_SERVER = "127.0.0.1:8080"


def free_port() -> int:
    """Return a port of loopback that nobody uses now."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def _documented(beginning: str) -> str:
    blocks = re.findall(r"```[a-z]*\n(.*?)```", _DOCUMENT.read_text(), re.DOTALL)
    (block,) = (each for each in blocks if each.startswith(beginning))
    return str(block)


def _replaced(text: str, *changes: tuple[str, str]) -> str:
    for before, after in changes:
        assert before in text, f"{_DOCUMENT.name} has no {before}"
        text = text.replace(before, after)
    return text


@contextmanager
def nginx(
    folder: Path, server: str, certificates: Certificates, *, read_timeout: str = "125m"
) -> Iterator[str]:
    """Run nginx in front of a server at ``HOST:PORT``; give its URL."""
    port = free_port()
    site = _replaced(
        _documented("server {"),
        ("listen 443 ssl", f"listen 127.0.0.1:{port} ssl"),
        ("/etc/ssl/leases.pem", certificates.server.file),
        ("/etc/ssl/private/leases.key", certificates.server.key_file),
        (_SERVER, server),
        ("125m", read_timeout),
    )
    paths = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    temporary = "\n".join(f"{each}_temp_path {folder}/{each};" for each in paths)
    config = folder / "nginx.conf"
    config.write_text(
        f"user root;\ndaemon off;\nworker_processes 1;\npid {folder}/pid;\n"
        f"error_log {folder}/error.log;\nevents {{}}\n"
        f"http {{\naccess_log off;\n{temporary}\n{site}\n}}\n"
    )
    with _running("nginx", ["-e", f"{folder}/error.log", "-c", str(config)], port):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def caddy(folder: Path, server: str, certificates: Certificates) -> Iterator[str]:
    """Run Caddy in front of a server at ``HOST:PORT``; give its URL."""
    port = free_port()
    leaf = certificates.server
    site = _replaced(
        _documented("leases.example.com {"),
        ("leases.example.com {", f"https://127.0.0.1:{port} {{\n\ttls {leaf.file} {leaf.key_file}"),
        (_SERVER, server),
    )
    config = folder / "Caddyfile"
    config.write_text(
        f"{{\n\tadmin off\n\tauto_https off\n\tstorage file_system {folder}\n}}\n{site}"
    )
    with _running("caddy", ["run", "--adapter", "caddyfile", "--config", str(config)], port):
        yield f"https://127.0.0.1:{port}"


@contextmanager
def _running(program: str, arguments: list[str], port: int) -> Iterator[None]:
    path = shutil.which(program)
    if path is None:
        pytest.skip(f"{program} is not installed; scripts/test installs it where CI is set")
    process = subprocess.Popen(
        [path, *arguments], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        eventually(lambda: _listens(port), f"{program} to listen")
        yield
    finally:
        process.terminate()
        end_of(process)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
