"""``leasectl serve``: the lease proxy's protocol in front of pools."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import sys

import click

from leasectl.backends.kinds import KINDS, LOCAL, either, kind_of, not_served, served_prefixes
from leasectl.backends.opening import check_url, open_probe
from leasectl.cli.command import new_command
from leasectl.cli.context import open_service, settings, state_directory
from leasectl.cli.described import option
from leasectl.cli.extra import require_extra
from leasectl.cli.serve_env import SERVE_PID, SHELLS, Shell, exports
from leasectl.cli.shown.output import emit, note
from leasectl.errors import InvalidRequest
from leasectl.keeper.log import Log
from leasectl.system.background import Background
from leasectl.system.clock import Clock
from leasectl.text.durations import parse_duration
from leasectl.text.printable import printable
from leasectl.typed.hints import TYPE_CHECKING

if TYPE_CHECKING:
    import socket

EXAMPLE = """\b
Example:
  eval "$(leasectl serve --print-env)"
  h=$(leasectl acquire -t azure--install --backend "$LEASE_PROXY_SERVER_URL")
  leasectl release --handle "$h"
  kill "$LEASECTL_SERVE_PID"
"""

_SERVED = either(kind.title for kind in KINDS if kind.can_be_served)
HELP = f"""\
Answer as a lease proxy does, from pools here or on a server.

The pools are those of {_SERVED}.

Prints its address once it answers, lets go of stdout, and serves until TERM, INT or HUP. With
--print-env it does so in the background, as ssh-agent does: it prints what to export, its process
among it, and what goes wrong later is in serve.log in the state directory. Scripts made for
ci-operator's lease proxy run on it unchanged. A client that goes away while it waits gives up its
place. What is leased stays leased when the server ends, and the next server on the same state
directory knows it; a reclaim that asks for it is told to leave it. Open its address in a browser to
see the pools, who holds what until when, the queue and the last hours, always current; with
--token-file it asks for the token. GET /healthz tells whether it works and /metrics what Prometheus
wants to know; leasectl status, too, shows its pools.
"""

_ADDRESS = re.compile(r"(?:\[(?P<six>[0-9A-Fa-f:.]+)\]|(?P<host>[^\[\]:]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str) -> tuple[str, int]:
    """Read ``HOST:PORT`` or ``[IPv6]:PORT``; InvalidRequest when it is neither."""
    found = _ADDRESS.fullmatch(text)
    if not found or int(found["port"]) > 65535:
        raise InvalidRequest(f'"{printable(text)}" is no address; write it like 127.0.0.1:8080')
    return found["six"] or found["host"], int(found["port"])


@new_command(help=HELP, epilog=EXAMPLE)
@option(
    "--listen",
    "address",
    type=parse_address,
    default="127.0.0.1:0",
    show_default=True,
    metavar="HOST:PORT",
    help="Where to be reached; port 0 is any that is free.",
)
@option(
    "--print-env",
    is_flag=True,
    help="Serve in the background, and print what a shell has to export for its scripts to use "
    "this server: LEASE_PROXY_SERVER_URL, LEASECTL_SERVE_PID and, with --token-file, "
    "LEASECTL_TOKEN_FILE.",
)
@option(
    "--shell",
    type=click.Choice(SHELLS),
    default="sh",
    show_default=True,
    help="For which shell --print-env prints it; in fish: "
    "leasectl serve --print-env --shell fish | source",
)
@option(
    "--acquire-timeout",
    "acquire_seconds",
    type=parse_duration,
    default="120m",
    show_default=True,
    metavar="D",
    help="A request that has waited for so long is told that no lease could be had.",
)
@option(
    "--token-file",
    metavar="FILE",
    help="Clients have to show the bearer token in this file, as they do when LEASECTL_TOKEN_FILE "
    "names one. Default: no need.",
)
@option("-q", "--quiet", is_flag=True, help="Say nothing but what goes wrong.")
@option(
    "--backend",
    metavar="URL",
    help=f"Whose leases to hand out: {served_prefixes('or')}. "
    f"Default: LEASECTL_BACKEND, else {LOCAL}.",
)
def command(
    *,
    address: tuple[str, int],
    print_env: bool,
    shell: Shell,
    acquire_seconds: float,
    token_file: str | None,
    quiet: bool,
    backend: str | None,
) -> int:
    """As `HELP` has it."""
    require_extra("serve", ("starlette", "uvicorn"), of="serve")
    if print_env and token_file is not None and not token_file.isprintable():
        raise InvalidRequest(f"no shell can be told of the file {printable(token_file)}")
    background = Background() if print_env else None
    if background is not None and not background.is_child:
        return _pass_on(background)
    from leasectl.http.settings import read_token
    from leasectl.server.serving import listen, serve, url_of

    token = None if token_file is None else read_token(token_file, named_by="--token-file")
    # Not LEASE_PROXY_SERVER_URL: that is what a shell that uses this server has exported.
    served = backend or os.environ.get("LEASECTL_BACKEND") or LOCAL
    check_url(served)
    if not kind_of(served).can_be_served:
        raise not_served(served)
    warn = note
    if background is not None:
        warn = Log(os.path.join(os.path.abspath(state_directory()), "serve.log"), Clock()).write
    service = open_service(served, for_many=True, warn=warn)
    if kind_of(served).has_pools:
        service.pools.pools()  # a server that isn't there is no use
    bound = listen(*address)
    url = url_of(bound)
    _warn_of_strangers(bound, token)

    def ready() -> None:
        if background is not None:
            if not background.tell(exports(_variables(url, background.pid, token_file), shell)):
                os.kill(os.getpid(), signal.SIGTERM)
            return
        emit(f"{url}\n")
        _let_go_of_stdout()
        if not quiet:
            what = f"{service.backend_url} of {service.state.directory}"
            note(f"serving {what} at {url}; its page: {url}/")

    serve(
        service,
        bound,
        acquire_seconds=acquire_seconds,
        token=token,
        # Not by what the environment says, which may be of a folder that we have left by then.
        open_another=service.for_another_thread,
        probe=open_probe(service.backend_url, settings(service.backend_url), clock=Clock()),
        ready=ready,
        warn=warn,
    )
    service.state.close()
    return 0


def _pass_on(background: Background) -> int:
    """Print what a server in the background has to say, once it is there."""
    said = background.wait()
    if not said:
        return background.exit_code()  # it has said why
    emit(said)
    background.confirm()
    if os.environ.get("LEASECTL_BACKEND"):
        note(
            "LEASECTL_BACKEND is set, and counts before LEASE_PROXY_SERVER_URL; unset it for "
            "commands that are to use this server"
        )
    return 0


def _variables(url: str, pid: int, token_file: str | None) -> list[tuple[str, str]]:
    """What a client's environment needs."""
    variables = [("LEASE_PROXY_SERVER_URL", url), (SERVE_PID, str(pid))]
    if token_file is not None:
        variables.append(("LEASECTL_TOKEN_FILE", os.path.abspath(token_file)))
    return variables


def _warn_of_strangers(bound: socket.socket, token: str | None) -> None:
    host = bound.getsockname()[0]
    if token is None and not ipaddress.ip_address(host.partition("%")[0]).is_loopback:
        note(
            f"anybody who reaches {host} can take and give back leases: there is no --token-file, "
            "and nothing is encrypted"
        )


def _let_go_of_stdout() -> None:
    """Whoever reads the address waits for the end of it, not for the end of the server."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)
