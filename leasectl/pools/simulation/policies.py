"""Policies that spread starts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from leasectl.engines.facts import NO_SETTINGS, PoolSettings
from leasectl.errors import InvalidRequest
from leasectl.pools.settings import SettingsChange, changed
from leasectl.pools.simulation.jobs import parse_range
from leasectl.text.durations import format_seconds, parse_duration, parse_duration_range
from leasectl.text.wording import nearest, printable

KNOWN = ("none", "jitter", "start-jitter", "release-after", "pace", "burst", "aging")
FORMS = (
    "none, jitter=15m, start-jitter=5m, release-after=18m-22m, pace=20s or aging=30m, several with "
    "commas between them"
)


class Policy(NamedTuple):
    """What the jobs and their pool do about many starts at once.

    Args:
        text: How it is written.
        jitter_seconds: A job waits a random time of up to this before it makes its request.
        start_jitter_seconds: It waits one after the grant, lease in hand; only then its work
            starts, and its hold counts.
        release_after_seconds: The range from which its hold is drawn instead; None for its own.
        settings: How the pool grants.
    """

    text: str
    jitter_seconds: float = 0.0
    start_jitter_seconds: float = 0.0
    release_after_seconds: tuple[float, float] | None = None
    settings: PoolSettings = NO_SETTINGS


NO_POLICY = Policy("none")


def parse_policy(text: str) -> Policy:
    """Read a policy: its parts, with commas between them.

    Raises:
        InvalidRequest: It is none.
    """
    given: dict[str, str] = {}
    for part in text.split(","):
        key, _, value = part.strip().partition("=")
        if key not in KNOWN:
            raise _unknown(key)
        if key in given:
            raise _refusal(text, f"{key} is given twice")
        if key == "none":
            if text.strip() != key:
                raise _refusal(text, '"none" can\'t be combined with others')
            return NO_POLICY
        if not value:
            raise _refusal(text, f"{key} needs a value; write {FORMS}")
        given[key] = value
    return _policy(text, given)


def of_settings(settings: PoolSettings) -> Policy:
    """The policy of a pool that grants by these settings."""
    parts = []
    if settings.pace_seconds:
        parts.append(f"pace={duration_text(settings.pace_seconds)}")
    if settings.burst != 1:
        parts.append(f"burst={settings.burst}")
    if settings.aging_seconds:
        parts.append(f"aging={duration_text(settings.aging_seconds)}")
    return Policy(",".join(parts) or NO_POLICY.text, settings=settings)


def with_pace(policy: Policy, seconds: float) -> Policy:
    """The same with another pace."""
    settings = policy.settings._replace(pace_seconds=seconds)
    own = of_settings(settings)
    kept = [part for part in policy.text.split(",") if part.split("=")[0] in _BY_JOBS]
    return policy._replace(text=",".join([own.text, *kept]), settings=settings)


def duration_text(seconds: float) -> str:
    """A duration so that it can be read back as it is."""
    shown = format_seconds(seconds)
    return shown if parse_duration(shown) == seconds else f"{seconds:.10g}s"


_BY_JOBS = ("jitter", "start-jitter", "release-after")


def _policy(text: str, given: Mapping[str, str]) -> Policy:
    def seconds(key: str) -> float | None:
        return parse_duration(given[key]) if key in given else None

    held = given.get("release-after")
    try:
        change = SettingsChange(
            pace_seconds=seconds("pace"),
            burst=_burst(given["burst"]) if "burst" in given else None,
            aging_seconds=seconds("aging"),
        )
        return Policy(
            text=text,
            jitter_seconds=seconds("jitter") or 0.0,
            start_jitter_seconds=seconds("start-jitter") or 0.0,
            release_after_seconds=(
                None if held is None else parse_range(held) or parse_duration_range(held)
            ),
            settings=changed(NO_SETTINGS, change),
        )
    except InvalidRequest as error:
        raise _refusal(text, str(error)) from None


def _burst(value: str) -> int:
    if value.isascii() and value.isdigit() and len(value) < 10:
        return int(value)
    raise InvalidRequest(f'invalid number of grants "{printable(value)}"')


def _unknown(key: str) -> InvalidRequest:
    near = nearest(key, KNOWN)
    hint = f'did you mean "{near}"?' if near else f"write {FORMS}"
    return InvalidRequest(f'unknown policy "{printable(key)}"; {hint}')


def _refusal(text: str, what: str) -> InvalidRequest:
    return InvalidRequest(f'policy "{printable(text, longest=200)}": {what}')


def parse_policies(texts: Sequence[str]) -> tuple[Policy, ...]:
    """Read several policies; InvalidRequest when one is none, or there twice."""
    for text in texts:
        if texts.count(text) > 1:
            raise _refusal(text, "it is given twice; give it once")
    return tuple(map(parse_policy, texts))
