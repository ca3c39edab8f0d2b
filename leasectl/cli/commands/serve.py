"""``leasectl serve``: the lease proxy's protocol in front of pools."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys

from leasectl.backends.kinds import (
    LOCAL,
    all_kinds,
    either,
    is_served,
    prefixes,
)
from leasectl.cli import options
from leasectl.cli.command import new_command
from leasectl.cli.described import option
from leasectl.cli.extra import require_extra
from leasectl.cli.rendering.output import emit, note
from leasectl.cli.serve_env import Shell, exports
from leasectl.errors import InvalidRequest
from leasectl.http.settings import is_readable_by_others
from leasectl.leases.opening import SERVE_PID, process_named_by
from leasectl.leases.request import check_ttl
from leasectl.system.background import Background
from leasectl.text.wording import printable

EXAMPLE = """\b
Example:
  eval "$(leasectl serve --print-env)"
  h=$(leasectl acquire -t azure--install --backend "$LEASE_PROXY_SERVER_URL")
  leasectl release --handle "$h"
  kill "$LEASECTL_SERVE_PID"
"""


def _help() -> str:
    served = either(kind.title for kind in all_kinds() if kind.can_be_served)
    return f"""\
Run a lease-proxy server with a web page.

It serves leases of {served}.

Prints its URL once it answers, closes stdout, and serves until TERM or INT (without a token file
also until HUP), or until the process that --guard-pid names ends. With --print-env it runs in the
background, like ssh-agent: it prints the variables to export and logs errors to serve.log in the
state directory.

Scripts made for ci-operator's lease proxy run unchanged; with --print-env, scripts that call curl
need --no-token. For clients of the lease proxy's protocol: a client that disconnects while it waits
leaves the queue. A lease lasts until it is released, until --lease-limit, or until the process of
--guard-pid ends. Leases outlive the server: the next server on the same state directory continues
with them. A reclaim can't take them.

Open the URL in a browser to see pools, holders, queue and recent history; with --token-file the
page asks for the token. GET /healthz reports health, /metrics is for Prometheus, and leasectl
status shows the pools.
"""


_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` or ``[IPv6]:PORT``; raise InvalidRequest for anything else."""
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535:
        raise InvalidRequest(f'invalid address "{printable(text)}"; write it like 127.0.0.1:8080')
    return found["six"] or found["host"], int(found["port"])


@new_command(help=_help, epilog=EXAMPLE)
@option(
    "--listen HOST:PORT",
    "The address to listen on; port 0: any free port.",
    to="address",
    type=parse_address,
    default="127.0.0.1:0",
    show_default=True,
)
@option(
    "--print-env",
    "Serve in the background and print shell commands that export LEASE_PROXY_SERVER_URL, "
    "LEASECTL_SERVE_PID and, unless --no-token is given, LEASECTL_TOKEN_FILE.",
)
@option(
    "--shell [sh|bash|zsh|fish]",
    "The shell that --print-env prints for; in fish: leasectl serve --print-env --shell fish "
    "| source",
    default="sh",
    show_default=True,
)
@option(
    "--acquire-timeout D",
    "Refuse a request that has waited this long.",
    to="acquire_seconds",
    default="120m",
    show_default=True,
)
@option(
    "--lease-limit D",
    "End a lease this long after its grant if its client speaks only the lease proxy's "
    "protocol, which can't renew. Default: never.",
    to="limit_seconds",
)
@option(
    "--strict-release",
    "Let a client of the lease proxy's protocol release a lease only with the Idempotency-Key "
    "that it was acquired with. Without a key, a client can only release leases that were "
    "acquired without a key.",
)
@option(
    "--token-file FILE",
    "Require a bearer token of this file: one token, or lines NAME RIGHTS TOKEN, with the "
    "rights use or use,admin. On HUP the server reads the file again. Clients put their token "
    "alone into a file, and that file's path into LEASECTL_TOKEN_FILE. Default: with --print-env "
    "a new file in the state directory, otherwise no token.",
)
@option(
    "--no-token",
    "With --print-env: require no token, for scripts that send none. Every local user can "
    "then acquire and release leases.",
)
@option(
    "--trusted-proxy ADDRESS",
    "Take a client's address from Forwarded or X-Forwarded-For of requests from this address "
    "or network, like 10.0.0.0/8; repeatable.",
    to="trusted_proxies",
    multiple=True,
)
@option(
    "--guard-pid PID",
    "Serve one job: when this process ends, stop serving and release every lease that was "
    "granted here. In a script, use $$.",
)
@options.quiet
@option(
    "--backend URL",
    lambda: (
        f"The backend of the leases: {prefixes('or', has=is_served)}. "
        f"Default: LEASECTL_BACKEND, else {LOCAL}."
    ),
)
def command(
    *,
    address: tuple[str, int],
    print_env: bool,
    shell: Shell,
    acquire_seconds: float,
    limit_seconds: float | None,
    strict_release: bool,
    token_file: str | None,
    no_token: bool,
    trusted_proxies: tuple[str, ...],
    guard_pid: int | None,
    quiet: bool,
    backend: str | None,
) -> int:
    """Serve as `_help` tells."""
    require_extra("serve", ("jinja2", "starlette", "uvicorn"), of="serve")
    if print_env and token_file is not None:
        _check_path(token_file)
    if no_token and token_file is not None:
        raise InvalidRequest("use either --token-file or --no-token")
    if limit_seconds is not None:
        check_ttl(limit_seconds, named="--lease-limit")
        if guard_pid is not None:
            raise InvalidRequest("use either --lease-limit or --guard-pid")
    guard = None if guard_pid is None else process_named_by("--guard-pid", guard_pid)
    background = Background() if print_env else None
    if background is not None and not background.is_child:
        return _pass_on(background)
    # Only an installation with the extra has what these need.
    from leasectl.server.origins import is_loopback
    from leasectl.server.responses import make_token_file
    from leasectl.server.served_leases import Rules
    from leasectl.server.serving import listen, open_served, serve, url_of
    from leasectl.server.tokens import Tokens, parse_network

    trusted = tuple(map(parse_network, trusted_proxies))
    tokens = None if token_file is None else Tokens(token_file)
    # Not LEASE_PROXY_SERVER_URL: that is what a shell that uses this server has exported.
    served = backend or os.environ.get("LEASECTL_BACKEND") or LOCAL
    service = open_served(served, warn=note, logs=print_env)
    bound = listen(*address)
    url = url_of(bound)
    if print_env and token_file is None and not no_token:
        token_file = make_token_file(service.state.directory)
        _check_path(token_file)
        tokens = Tokens(token_file)
    if token_file is None:
        host = bound.getsockname()[0]
        _warn_of_strangers(host, is_local=is_loopback(host), quiet=quiet)
    elif is_readable_by_others(token_file):
        shown = printable(token_file, longest=500)
        note(f"other users can read the token file {shown}; run: chmod 600 {shlex.quote(shown)}")

    def ready() -> None:
        if background is not None:
            if not background.tell(exports(_variables(url, background.pid, token_file), shell)):
                os.kill(os.getpid(), signal.SIGTERM)
            return
        emit(f"{url}\n")
        _let_go_of_stdout()
        if not quiet:
            what = f"{service.backend_url} (state directory {service.state.directory})"
            note(f"serving {what} at {url} (open it in a browser)")
            if service.kind.has_pools:
                note(f"leasectl's own clients: --backend leasectl+{url}")

    serve(
        service,
        bound,
        rules=Rules(acquire_seconds, limit_seconds, strict_release),
        tokens=tokens,
        trusted=trusted,
        guard=guard,
        own_name=address[0],
        ready=ready,
    )
    service.state.close()
    return 0


def _check_path(token_file: str) -> None:
    if not token_file.isprintable():
        raise InvalidRequest(f"--print-env can't print this file name: {printable(token_file)}")


def _pass_on(background: Background) -> int:
    """Print what a server in the background has to say, once it is there."""
    said = background.wait()
    if not said:
        return background.exit_code()  # it has said why
    emit(said)
    background.confirm()
    if os.environ.get("LEASECTL_BACKEND"):
        note(
            "LEASECTL_BACKEND is set and takes precedence over LEASE_PROXY_SERVER_URL; unset it "
            "for commands that are to use this server"
        )
    return 0


def _variables(url: str, pid: int, token_file: str | None) -> list[tuple[str, str]]:
    """What a client's environment needs."""
    variables = [("LEASE_PROXY_SERVER_URL", url), (SERVE_PID, str(pid))]
    if token_file is not None:
        variables.append(("LEASECTL_TOKEN_FILE", os.path.abspath(token_file)))
    return variables


def _warn_of_strangers(host: str, *, is_local: bool, quiet: bool) -> None:
    """Say who may use a server that asks for no token."""
    if not is_local:
        note(
            f"without --token-file, anyone who can reach {host} can acquire and release leases; "
            "traffic is not encrypted"
        )
    elif not quiet:
        note(
            "without a token, every user of this machine can acquire and release leases; set one "
            "with --token-file FILE"
        )


def _let_go_of_stdout() -> None:
    """Close stdout, so that the reader of the address doesn't wait for the server's end."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
