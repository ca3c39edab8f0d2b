"""Boskos' requests: paths, methods, parameters, codes and texts."""

from __future__ import annotations

import base64
import datetime
import json
import re
from collections.abc import Callable, Mapping, Sequence

from tests.kit.boskos.ranch import OTHER_JOB, Asked, Ranch, Resource
from tests.kit.boskos.raw_boskos import Refused
from tests.kit.faults.answers import refusal
from tests.kit.faults.connection import Exchange
from tests.kit.faults.http1 import Answer, Request

_DURATION = re.compile(r"(?:[0-9]+(?:\.[0-9]*)?(?:h|ms|m|s|us|µs|ns))+")
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class BoskosApi:
    """What the paths do.

    Args:
        ranch: Whose resources.
        prefix: The part of each path that a proxy in front takes off.
        user: ``NAME:PASSWORD`` that this proxy asks for, if any.
        target_state: Where the reaper puts what it takes.
    """

    def __init__(
        self, ranch: Ranch, *, prefix: str = "", user: str | None = None, target_state: str
    ) -> None:
        self._ranch = ranch
        self._prefix = prefix
        self._user = user
        self._target_state = target_state
        self._paths: dict[str, tuple[str, Callable[[Exchange, _Words], Answer]]] = {
            "/acquire": ("POST", self._acquire),
            "/acquirebystate": ("POST", self._acquire_by_state),
            "/update": ("POST", self._update),
            "/release": ("POST", self._release),
            "/reset": ("POST", self._reset),
            "/metric": ("GET", self._metric),
        }

    async def handle(self, exchange: Exchange) -> Answer:
        """Do what a request asks for."""
        request = exchange.request
        if self._user is not None and not _says(request, self._user):
            answer = refusal(401, "<html><body><h1>401 Authorization Required</h1></body></html>")
            return answer._replace(headers=(("WWW-Authenticate", 'Basic realm="boskos"'),))
        if not request.path.startswith(f"{self._prefix}/"):
            return refusal(404, "404 page not found")
        path = request.path[len(self._prefix) :]
        if path not in self._paths:
            return Answer(200)  # it says yes to all that it doesn't know
        method, do = self._paths[path]
        if request.method != method:
            return refusal(405, _wrong_method(path, request.method))
        try:
            return do(exchange, _Words(request))
        except Refused as error:
            return refusal(error.status, error.text)

    def state(self) -> dict[str, object]:
        """All resources, what of them is whose, and the queues."""
        resources = self._ranch.resources.values()
        return {
            "resources": [each._asdict() for each in resources],
            "leased": sorted(each.name for each in resources if each.owner),
            "owners": {each.name: each.owner for each in resources if each.owner},
            "waiting": self._ranch.ranks.show(),
        }

    def occupy(self, pool_type: str, count: int) -> list[str]:
        return self._ranch.occupy(pool_type, count, "free", "leased")

    def vacate(self, names: Sequence[str]) -> list[str]:
        theirs = [each.name for each in self._ranch.resources.values() if each.owner == OTHER_JOB]
        given = sorted(set(theirs).intersection(names) if names else theirs)
        for name in given:
            self._ranch.release(name, OTHER_JOB, "free", 0)
        return given

    def reap(self, names: Sequence[str]) -> list[str]:
        return self._ranch.reap(names, self._target_state)

    # ---- a path each

    def _acquire(self, exchange: Exchange, words: _Words) -> Answer:
        asked = Asked(
            words["type"], words["state"], words["dest"], words["owner"], words["request_id"]
        )
        if not all(asked[:4]):
            given = f"Type: {asked[0]}, state: {asked[1]}, dest: {asked[2]}, owner: {asked[3]}"
            text = f"{given}, all of them must be set in the request."
            raise Refused(400, self._ranch.wording.failed("Bad request", text))
        granted = self._ranch.acquire(asked, exchange.number)
        exchange.names = [granted.name]
        return _text(_encode(granted))

    def _acquire_by_state(self, exchange: Exchange, words: _Words) -> Answer:
        names = words["names"]
        asked = Asked("", words["state"], words["dest"], words["owner"])
        if not all((*asked[1:4], names)):
            given = f"state: {asked[1]}, dest: {asked[2]}, owner: {asked[3]}, names: {names}"
            raise Refused(400, f"{given} - all of them must be set in the request.")
        granted = self._ranch.acquire_by_state(asked, names.split(","), exchange.number)
        exchange.names = [each.name for each in granted]
        return _text(f"[{','.join(map(_encode, granted))}]\n")

    def _update(self, exchange: Exchange, words: _Words) -> Answer:
        name, owner, state = words["name"], words["owner"], words["state"]
        if not (name and owner and state):
            given = f"Name: {name}, owner: {owner}, state : {state}"
            raise Refused(400, f"{given}, all of them must be set in the request.")
        data = _parse_userdata(exchange.request.body)
        self._ranch.update(name, owner, state, data, exchange.number)
        return Answer(200)

    def _release(self, exchange: Exchange, words: _Words) -> Answer:
        name, dest, owner = words["name"], words["dest"], words["owner"]
        if not (name and dest and owner):
            given = f"Name: {name}, dest: {dest}, owner: {owner}"
            raise Refused(400, f"{given}, all of them must be set in the request.")
        self._ranch.release(name, owner, dest, exchange.number)
        return Answer(200)

    def _reset(self, exchange: Exchange, words: _Words) -> Answer:
        pool_type, state, expire, dest = (words[key] for key in ("type", "state", "expire", "dest"))
        if not (pool_type and state and expire and dest):
            given = f"Type: {pool_type}, state: {state}, expire: {expire}, dest: {dest}"
            raise Refused(400, f"{given}, all of them must be set in the request.")
        taken = self._ranch.reset(pool_type, state, _parse_duration(expire), dest)
        return _text(json.dumps(taken, separators=(",", ":"), sort_keys=True))

    def _metric(self, exchange: Exchange, words: _Words) -> Answer:
        if not words["type"]:
            raise Refused(400, "Type must be set in the request.")
        counts = json.dumps(self._ranch.metric(words["type"]), separators=(",", ":"))
        return Answer(200, counts.encode(), "application/json")


class _Words:
    """A request's parameters; they are in its address, and what isn't there is empty."""

    def __init__(self, request: Request) -> None:
        self._request = request

    def __getitem__(self, name: str) -> str:
        return self._request.query(name)


def _says(request: Request, user: str) -> bool:
    wanted = base64.b64encode(user.encode()).decode()
    return request.headers.get("authorization") == f"Basic {wanted}"


def _wrong_method(path: str, method: str) -> str:
    if path == "/metric":
        return "/metric only accepts GET"
    named = "/acquire" if path == "/acquirebystate" else path
    return f"Method {method}, {named} only accepts POST."


def _text(text: str) -> Answer:
    """What it doesn't say is JSON, and Go's server takes for text."""
    return Answer(200, text.encode())


def _encode(resource: Resource) -> str:
    touched = datetime.datetime.fromtimestamp(resource.touched, datetime.timezone.utc)
    shown = {
        "type": resource.type,
        "name": resource.name,
        "state": resource.state,
        "owner": resource.owner,
        "lastupdate": f"{touched:%Y-%m-%dT%H:%M:%SZ}",
        "userdata": resource.userdata,
    }
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)


def _parse_userdata(body: bytes) -> Mapping[str, str]:
    if not body.strip():
        return {}
    try:
        data = json.loads(body)
    except ValueError as error:
        raise Refused(400, str(error)) from None
    if data is None:
        return {}
    if not isinstance(data, dict) or not all(isinstance(each, str) for each in data.values()):
        raise Refused(400, "json: cannot unmarshal into Go value of type common.UserDataMap")
    return data


def _parse_duration(text: str) -> float:
    sign = -1.0 if text.startswith("-") else 1.0
    bare = text.lstrip("+-")
    if bare == "0":
        return 0.0
    if not _DURATION.fullmatch(bare):
        raise Refused(400, f'time: invalid duration "{text}"')
    parts = re.findall(r"([0-9.]+)(h|ms|m|s|us|µs|ns)", bare)
    return sign * sum(float(number) * _UNITS[unit] for number, unit in parts)
