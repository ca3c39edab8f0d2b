"""Open the state directory and the backend that the environment names.

Only this module of the library reads the environment, for the command line and for `client`.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from typing import NamedTuple

from leasectl.backends.contract import Caller
from leasectl.backends.kinds import LOCAL, Context, Kind, kind_of, prefixes
from leasectl.errors import BackendUnreachable, InvalidRequest, LeaseError, NotFound
from leasectl.http.settings import Settings
from leasectl.leases.recovery import recover
from leasectl.leases.service import Service, handles_around
from leasectl.model import Process
from leasectl.state.directory import State
from leasectl.system.clock import Clock
from leasectl.system.lock_wait import LockLimit
from leasectl.system.process import identify, process_of_thread
from leasectl.text.durations import NoTime, parse_duration
from leasectl.text.naming import escape_word
from leasectl.text.wording import printable, printable_url

_SERVER_URL = "LEASE_PROXY_SERVER_URL"
_PRIORITY = "LEASECTL_PRIORITY"
_RELEASE_TIMEOUT = "LEASECTL_RELEASE_TIMEOUT"
_SHORT_SECONDS = 3.0
_REST_SECONDS = 5.0

# The process of the server that a shell has started, for `kill`.
SERVE_PID = "LEASECTL_SERVE_PID"
_PROBE_SECONDS = 2.0


class BackendChoice(NamedTuple):
    """Which backend is used, and what chose it."""

    url: str
    reason: str


def state_directory() -> str:
    """``LEASECTL_STATE_DIR``, or a folder that no script changes half-way by changing HOME."""
    return os.environ.get("LEASECTL_STATE_DIR") or f"/tmp/leasectl-{os.geteuid()}"


def choose_backend(option: str | None) -> BackendChoice:
    """Choose by ``--backend``, ``LEASECTL_BACKEND``, ``LEASE_PROXY_SERVER_URL``, in this order.

    Raises:
        InvalidRequest: The option is empty, as an unset variable of a script is.
    """
    if option is not None and not option.strip():
        raise InvalidRequest("--backend is empty; give a URL, or leave it out")
    for given_by in ("--backend", "LEASECTL_BACKEND", _SERVER_URL):
        url = option if given_by == "--backend" else os.environ.get(given_by)
        if url:
            scheme, colon, rest = url.strip().partition(":")
            return BackendChoice(f"{scheme.lower()}{colon}{rest}", given_by)
    return BackendChoice(LOCAL, "the embedded pool of this state directory (the default)")


def caller() -> Caller:
    """Say on whose behalf this process acts."""
    host = escape_word(os.uname().nodename)
    job, build, url = _ci_job()
    owner = f"{escape_word(job)}/{escape_word(build)}" if job and build else f"{_user()}@{host}"
    return Caller(owner, host, _path("SHARED_DIR"), handles_around(os.environ), url)


class _Ci(NamedTuple):
    """The variables by which a CI system describes a job.

    Args:
        marker: Is set wherever the system runs a job.
        job: Parts of the job's name.
        build: Parts of a number that no other job of that name has.
        url: The address of the build, with variables in braces.
    """

    marker: str
    job: tuple[str, ...]
    build: tuple[str, ...]
    url: str


# JOB_NAME and BUILD_ID come before these: Prow and Jenkins set them, and so may anyone else.
_CI_SYSTEMS = (
    _Ci(
        "GITHUB_ACTIONS",
        ("GITHUB_REPOSITORY", "GITHUB_WORKFLOW", "GITHUB_JOB"),
        ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"),
        "{GITHUB_SERVER_URL}/{GITHUB_REPOSITORY}/actions/runs/{GITHUB_RUN_ID}",
    ),
    _Ci("GITLAB_CI", ("CI_PROJECT_PATH", "CI_JOB_NAME"), ("CI_JOB_ID",), "{CI_JOB_URL}"),
    _Ci(
        "BUILDKITE",
        ("BUILDKITE_ORGANIZATION_SLUG", "BUILDKITE_PIPELINE_SLUG"),
        ("BUILDKITE_BUILD_NUMBER", "BUILDKITE_JOB_ID"),
        "{BUILDKITE_BUILD_URL}#{BUILDKITE_JOB_ID}",
    ),
    _Ci(
        "CIRCLECI",
        ("CIRCLE_PROJECT_USERNAME", "CIRCLE_PROJECT_REPONAME", "CIRCLE_JOB"),
        ("CIRCLE_BUILD_NUM", "CIRCLE_NODE_INDEX"),
        "{CIRCLE_BUILD_URL}",
    ),
    _Ci(
        "TF_BUILD",
        ("SYSTEM_TEAMPROJECT", "BUILD_DEFINITIONNAME"),
        ("BUILD_BUILDID", "SYSTEM_JOBID"),
        "{SYSTEM_COLLECTIONURI}{SYSTEM_TEAMPROJECT}/_build/results?buildId={BUILD_BUILDID}",
    ),
)
_LONGEST_URL = 1000


def _ci_job() -> tuple[str, str, str]:
    """The job, the build and the build's address, as far as this is a CI job; else empty."""
    job, build = _utf8("JOB_NAME"), _utf8("BUILD_ID")
    if job and build:
        return job, build, _url_of("{BUILD_URL}")
    for ci in _CI_SYSTEMS:
        if os.environ.get(ci.marker):
            job = "/".join(filter(None, map(_utf8, ci.job)))
            build = "-".join(filter(None, map(_utf8, ci.build)))
            return job, build, _url_of(ci.url)
    return "", "", ""


def _url_of(template: str) -> str:
    """An address made of variables; empty where one is missing, or it is none to show."""
    try:
        url = template.format_map(os.environ).replace(" ", "%20")
    except KeyError:
        return ""
    is_shown = url.startswith(("https://", "http://")) and url.isprintable()
    return url if is_shown and len(url) <= _LONGEST_URL else ""


def _utf8(variable: str) -> str:
    """Read a variable as UTF-8 in every locale: a job is the same owner on every host."""
    return os.environb.get(variable.encode(), b"").decode("utf-8", "surrogateescape")


def _user() -> str:
    import pwd

    try:
        return escape_word(pwd.getpwuid(os.geteuid()).pw_name)
    except KeyError:
        return f"uid{os.geteuid()}"  # an arbitrary uid without a passwd entry


def settings(url: str | None = None) -> Settings:
    """How to talk to a server; credentials are only ever named by the path of their file.

    Args:
        url: Of the backend, where it may be the environment that says which server is meant.
    """
    common = Settings(
        token_file=_path("LEASECTL_TOKEN_FILE"),
        ca_file=_path("LEASECTL_CA_FILE") or _path("SSL_CERT_FILE"),
        trust_env=os.environ.get("LEASECTL_TRUST_ENV") == "1",
        cert_file=_path("LEASECTL_CERT_FILE"),
        key_file=_path("LEASECTL_KEY_FILE"),
        user_file=_path("LEASECTL_USER_FILE"),
    )
    return common if url is None else kind_of(url).locate(url, common, os.environ)


def release_seconds(default: float | None = None) -> float | None:
    """How long a release may take on a server, ``LEASECTL_RELEASE_TIMEOUT``; None: as usual.

    Raises:
        InvalidRequest: It says no time.
    """
    timeout = os.environ.get(_RELEASE_TIMEOUT)
    if not timeout:
        return default
    try:
        return parse_duration(timeout)
    except NoTime as error:
        raise InvalidRequest(f"{_RELEASE_TIMEOUT}: {error}") from None


def default_priority(backend: str | None, warn: Callable[[str], object]) -> int:
    """Return the priority of requests that name none: ``LEASECTL_PRIORITY``, else 0.

    The variable is set for a whole script. So a backend without priorities ignores it, but refuses
    a request that names one.

    Args:
        backend: What ``--backend`` says.
        warn: Called with a line for people if the variable is ignored.

    Raises:
        InvalidRequest: It is no priority.
    """
    text = os.environ.get(_PRIORITY)
    if not text:
        return 0
    from leasectl.leases.request import parse_priority

    priority, url = parse_priority(text, named=_PRIORITY), choose_backend(backend).url
    kind = kind_of(url)
    if not priority or kind.has_pools or kind.grants_nothing:
        return priority
    warn(
        f"{_PRIORITY} is ignored: {url} has a queue of its own; only {prefixes('and')} know "
        "priorities"
    )
    return 0


def guard_of_step(step: Process, backend: str | None) -> Process | None:
    """Return the guard of a lease that a step takes: the step, or None if others may release it."""
    return None if kind_of(choose_backend(backend).url).outlives_steps else step


def _path(variable: str) -> str | None:
    value = os.environ.get(variable)
    if not value:
        return None
    if not value.isprintable():
        raise InvalidRequest(f"{variable} is not a valid path: {printable(value)}")
    return os.path.abspath(value)


def open_service(
    backend: str | None = None,
    *,
    for_handles: bool = False,
    for_many: bool = False,
    to_show: bool = False,
    warn: Callable[[str], None],
    wait_seconds: float | None = None,
) -> Service:
    """Open the state directory and put right what killed commands left in it.

    Args:
        backend: What ``--backend`` says.
        for_handles: See `new_context`.
        for_many: See `new_context`.
        to_show: How things stand now is only to be shown, as far as a full disk allows.
        warn: See `new_context`.
        wait_seconds: How long a lease may be waited for, and so a lock; None for no limit.

    Raises:
        InvalidRequest: There is no such backend; no state directory has been made.
        BackendUnreachable: It was a server that is gone.
    """
    context = new_context(backend, for_handles=for_handles, for_many=for_many, warn=warn)
    limit = LockLimit()
    with limit.within_wait(wait_seconds):
        return open_at(state_directory(), context, limit, to_show=to_show)


def new_context(
    backend: str | None,
    *,
    for_handles: bool = False,
    for_many: bool = False,
    warn: Callable[[str], None],
) -> Context:
    """Return the context that the environment describes; nothing is opened.

    Args:
        backend: What ``--backend`` says.
        for_handles: Only handles that are there are the subject. They remember their backends,
            so it doesn't matter whether the environment names one that can be used.
        for_many: One thread of this process serves many, so none may take long.
        warn: Called with a line for people, about what should be known of although it goes on.

    Raises:
        InvalidRequest: There is no such backend.
        BackendUnreachable: It was a server of this shell that is gone.
    """
    url, chosen_by = choose_backend(backend)
    kind = None
    if not for_handles or backend:
        kind = kind_of(url)
        kind.check_url(url)
        if chosen_by == _SERVER_URL and SERVE_PID in os.environ:
            _check_served(url, settings())
    return Context(
        url,
        _settings(url, kind),
        caller(),
        release_seconds(_SHORT_SECONDS if for_many else None),
        _REST_SECONDS if for_many else 0.0,
        warn,
        known_kind=kind,
    )


def open_at(
    directory: str, context: Context, limit: LockLimit, *, to_show: bool = False
) -> Service:
    """Open a state directory for a context, and put right what killed commands left in it.

    Args:
        directory: Its path.
        context: As `new_context` returned it.
        limit: How long locks may be waited for.
        to_show: See `open_service`.

    Raises:
        StateUnwritable, CorruptState: See `State.open`.
    """
    state = State.open(directory, to_show=to_show, lock_limit=limit)
    kept = os.environ.get("LEASECTL_KEEP_EVENTS")
    if kept:
        _keep_events(state, kept, context.warn)
    service = Service(state, context)
    recover(service)
    return service


def _settings(url: str, kind: Kind | None) -> Settings:
    """Return the settings for a backend; without its server where that can't be found out now.

    Args:
        url: Of it.
        kind: Its class, if it is to be used in any case.
    """
    common = settings()
    if kind is not None:
        return kind.locate(url, common, os.environ)
    with contextlib.suppress(LeaseError):
        return kind_of(url).locate(url, common, os.environ)
    return common


def _keep_events(state: State, text: str, warn: Callable[[str], None]) -> None:
    from leasectl.state.event import parse_kept

    try:
        state.events.kept_seconds, state.events.kept_number = parse_kept(text)
    except InvalidRequest as error:
        # What is kept of a lease is no reason to have none.
        warn(f"{error}; using the default, 30d,100000")


def process_named_by(option_name: str, pid: int) -> Process:
    """The process that an option means.

    Args:
        option_name: Of the option, for the error.
        pid: As it was given.

    Raises:
        InvalidRequest: There is none, or it can't be read.
    """
    if pid < 1:
        raise InvalidRequest(f"{option_name} {pid} is not a process id; in a script, use $$")
    whole = process_of_thread(pid)
    if whole is not None:
        raise InvalidRequest(
            f"{option_name} {pid} is a thread; use its process: {option_name} {whole}"
        )
    try:
        return identify(pid)
    except NotFound:
        raise InvalidRequest(f"{option_name} {pid}: no such process") from None
    except LeaseError as error:
        raise InvalidRequest(f"{option_name} {pid}: {error}") from error


def _check_served(url: str, settings: Settings) -> None:
    """Find out whether the server that this shell uses has ended.

    Args:
        url: Of `LEASE_PROXY_SERVER_URL`.
        settings: How to talk to it.

    Raises:
        BackendUnreachable: Its process has ended, and no server answers there: waiting won't help.
    """
    pid = ended_server()
    if pid is None:
        return
    from leasectl.backends.proxy.connection import Connection
    from leasectl.backends.proxy.protocol import ACQUIRE
    from leasectl.backends.unanswered import NotSent

    connection = Connection(url, settings, clock=Clock())
    try:
        connection.look(ACQUIRE, seconds=_PROBE_SECONDS)
    except NotSent:
        raise BackendUnreachable(
            f"leasectl serve at {printable_url(url, longest=200)} is gone: process {pid} "
            f"({SERVE_PID}) has ended; LEASE_PROXY_SERVER_URL still points there: unset it, or "
            'start another server with: eval "$(leasectl serve --print-env)"'
        ) from None
    except LeaseError:
        return  # somebody is there


def ended_server() -> str | None:
    """The process of the server that this shell was told of, if it has ended."""
    pid = os.environ.get(SERVE_PID, "")
    if not (pid.isascii() and pid.isdigit() and 0 < int(pid) < 1 << 31):
        return None
    try:
        os.kill(int(pid), 0)
        identify(int(pid))
    except (ProcessLookupError, NotFound):  # a zombie, where nobody reaps it, has ended as well
        return pid
    except (OSError, LeaseError):
        return None
    return None
