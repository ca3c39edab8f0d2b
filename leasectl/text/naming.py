"""Check names of pools and resources."""

from __future__ import annotations

from collections.abc import Iterable

from leasectl.errors import InvalidRequest
from leasectl.text.wording import printable

LONGEST_TYPE = 200
LONGEST_NAME = 253
LONGEST_KEY = 200  # of a work
_LONGEST_WORD = 12 * LONGEST_KEY  # each byte of UTF-8 becomes three characters
MOST_AT_ONCE = 100_000  # resources, to make or take out by one command
# Sets of characters: `re` takes as long to load as a tenth of a command.
_DIGITS = "0123456789"
_OF_NAMES = f"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz{_DIGITS}._-"
_OF_RESOURCES = f"{_OF_NAMES}:"  # a device's: a host and port, or a bus and port
_NEVER_FIRST = "._-:"
_RESERVED = "once."
_OF_DIGESTS, _DIGEST_LENGTH = f"{_DIGITS}abcdef", 64
BUILD_LABEL = "build"  # its value is the address of the holder's build
OWN_LABELS = "leasectl."  # begins those that mean something to us
_SUPERSEDING_LABEL = f"{OWN_LABELS}supersede"
WHOLE_POOL_LABEL = (f"{OWN_LABELS}count", "all")  # of a request for all resources of its pool
_KEY_LABEL, _INPUTS_LABEL = f"{OWN_LABELS}once", f"{OWN_LABELS}inputs"
# Of a request that waits for the result of work, and never runs it.
FOLLOWER_LABEL = (f"{OWN_LABELS}follower", "yes")


def is_name(text: str) -> bool:
    """Tell whether text is a well-formed type, key or handle id."""
    return len(text) <= LONGEST_NAME and _is_well_formed(text)


def is_resource_name(text: str) -> bool:
    """Tell whether text is a well-formed resource name, like ``host-1`` or ``192.168.1.17:5555``.

    A ":" is no path separator, no special character of the shell, and in no key of etcd's or
    object name of Kubernetes' what separates its parts.
    """
    return len(text) <= LONGEST_NAME and _is_well_formed(text, _OF_RESOURCES)


def check_type(text: str) -> str:
    """Return the type, or raise InvalidRequest when it isn't well-formed."""
    return _check("pool name", text, LONGEST_TYPE)


def check_name(text: str) -> str:
    """Return the resource name, or raise InvalidRequest when it isn't well-formed."""
    if text.startswith("--") and is_resource_name(text[2:]):
        raise InvalidRequest(
            f'resource name "{text}" doesn\'t begin with a letter or digit; if status '
            "shortened it, see the full name with: leasectl status --wide"
        )
    return _check("resource name", text, LONGEST_NAME, _OF_RESOURCES)


def check_own_type(text: str) -> str:
    """The same, of a type that people name, which is none of those that work is done under."""
    return _check_own("pool name", check_type(text))


def check_own_name(text: str) -> str:
    """Return the resource name that people give, or raise InvalidRequest as `check_own_type`."""
    return _check_own("resource name", check_name(text))


def check_key(text: str) -> str:
    """Return the key of a work, or raise InvalidRequest if it isn't printable text."""
    _check_length("key", text, LONGEST_KEY)
    if not text or not text.isprintable():
        raise InvalidRequest(f'invalid key "{printable(text)}"; use one line of printable text')
    return text


def check_label_key(text: str) -> str:
    """Return the key of a label, or raise InvalidRequest when it isn't well-formed."""
    return _check("label key", text, LONGEST_NAME)


def is_reserved(text: str) -> bool:
    """Tell whether a type, or a name, is one of those that work is done under (`once`)."""
    if not text.startswith(_RESERVED):
        return False
    digest = text[len(_RESERVED) :][:_DIGEST_LENGTH]
    return len(digest) == _DIGEST_LENGTH and _has_only(_OF_DIGESTS, digest)


def reserved_type(digest: str) -> str:
    """The type of the pool that a work is done under, and the name of its one resource."""
    return f"{_RESERVED}{digest}"


def work_labels(key: str, inputs: str) -> tuple[tuple[str, str], ...]:
    """Return the labels by which a request tells which work it is for.

    Args:
        key: Of the work.
        inputs: Its inputs, shortened; empty for none.
    """
    labels = ((_KEY_LABEL, key),)
    return (*labels, (_INPUTS_LABEL, inputs)) if inputs else labels


def build_url_in(labels: Iterable[tuple[str, str]]) -> str:
    """The address of the build that labels tell of; empty where they tell of none."""
    return http_url(next((value for name, value in labels if name == BUILD_LABEL), ""))


def http_url(text: str) -> str:
    """Return an address that may be a link; empty for any but those of HTTP."""
    return text if text.startswith(("https://", "http://")) else ""


def superseding_label(key: str) -> tuple[str, str]:
    """The label of a request that withdraws older ones with the same key."""
    return _SUPERSEDING_LABEL, key


def superseding_key(labels: Iterable[tuple[str, str]]) -> str:
    """The key with which a request withdraws older ones; empty for none."""
    return next((key for name, key in labels if name == _SUPERSEDING_LABEL), "")


def wants_whole_pool(labels: Iterable[tuple[str, str]]) -> bool:
    """Tell whether a request asks for all resources of its pool."""
    return WHOLE_POOL_LABEL in labels


def is_follower(labels: Iterable[tuple[str, str]]) -> bool:
    """Tell whether labels have the `FOLLOWER_LABEL`."""
    return FOLLOWER_LABEL in labels


def work_in(labels: Iterable[tuple[str, str]]) -> str:
    """What to call the work that labels tell of; nothing where they tell of none."""
    key, inputs = key_and_inputs_in(labels)
    return f"work {work_title(key, inputs)}" if key else ""


def key_and_inputs_in(labels: Iterable[tuple[str, str]]) -> tuple[str, str]:
    """Return the key and the shortened inputs in `work_labels`; empty texts without them."""
    found = dict(labels)
    return found.get(_KEY_LABEL, ""), found.get(_INPUTS_LABEL, "")


def work_title(key: str, inputs: str) -> str:
    """Name a work for people: its key, and its shortened inputs if it has any."""
    return f"{key} ({inputs})" if inputs else key


def _check_own(what: str, text: str) -> str:
    if is_reserved(text):
        raise InvalidRequest(
            f'{what} "{text}" is reserved for leasectl once; see its work with: leasectl once '
            "--list"
        )
    return text


def _check(what: str, text: str, longest: int, allowed: str = _OF_NAMES) -> str:
    _check_length(what, text, longest)
    if not _is_well_formed(text, allowed):
        special = '".", "_", "-" and ":"' if ":" in allowed else '".", "_" and "-"'
        several = "; for several pools: -t A -t B" if what == "pool name" and "," in text else ""
        raise InvalidRequest(
            f'{what} "{printable(text)}" is not allowed; use letters, digits, {special}, '
            f"with a letter or digit first{several}"
        )
    return text


def _check_length(what: str, text: str, longest: int) -> None:
    if len(text) > longest:
        raise InvalidRequest(
            f'{what} "{printable(text)}" has {len(text)} characters; at most {longest} are allowed'
        )


def check_pattern(text: str) -> str:
    """Return a pattern of names, or raise InvalidRequest when none could be like it."""
    _check_length("pattern", text, LONGEST_NAME)
    if not _is_well_formed(text.replace("*", "x").replace("?", "x"), _OF_RESOURCES):
        raise InvalidRequest(
            f'pattern "{printable(text)}" is not allowed; use letters, digits, ".", '
            '"_", "-" and ":", with "*" for any characters and "?" for one'
        )
    return text


def is_word(text: str) -> bool:
    """Tell whether text is a name, or could come from `escape_word`."""
    return 0 < len(text) <= _LONGEST_WORD and _has_only(f"{_OF_RESOURCES}%~", text)


def escape_name(text: str) -> str:
    """Return a resource name as it is, and escape other text as `escape_word` does."""
    return text if is_resource_name(text) else escape_word(text)


def escape_word(text: str) -> str:
    """Turn free text (a job's name, a host's) into one word that every engine and a path take.

    Different texts give different words: bytes that no name has are escaped as ``%XX``, and what is
    too long ends with ``~`` and a digest of the whole.
    """
    if len(text) > LONGEST_TYPE:
        import hashlib

        whole = hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()
        return f"{escape_word(text[: LONGEST_TYPE - 33])}~{whole[:32]}"
    if _has_only(_OF_NAMES, text):
        return text
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(each) if chr(each) in _OF_NAMES else f"%{each:02X}" for each in raw)


def as_given(identity: str, *, longest: int = 1000) -> str:
    """Show an identity, or a part of one, with its words as they were given to `escape_word`."""
    if "%" in identity:
        first, *rest = identity.encode("utf-8", "surrogateescape").split(b"%")
        raw = first + b"".join(_unescaped(each) for each in rest)
        identity = raw.decode("utf-8", "surrogateescape")
    return printable(identity, longest=longest)


def _unescaped(part: bytes) -> bytes:
    digits = part[:2]
    if len(digits) == 2 and not digits.strip(b"0123456789ABCDEF"):
        return bytes([int(digits, 16)]) + part[2:]
    return b"%" + part


def next_names(pool_type: str, count: int, taken: Iterable[str]) -> tuple[str, ...]:
    """Make up names for further resources of a pool: ``<type>--<nn>``, after the highest taken.

    Raises:
        InvalidRequest: A name would be too long.
    """
    prefix = f"{pool_type}--"
    numbers = (name[len(prefix) :] for name in taken if name.startswith(prefix))
    highest = max((int(each) for each in numbers if _is_number(each)), default=-1)
    check_name(f"{prefix}{highest + count:02d}")
    return tuple(f"{prefix}{highest + 1 + n:02d}" for n in range(count))


def _is_well_formed(text: str, allowed: str = _OF_NAMES) -> bool:
    return text != "" and text[0] not in _NEVER_FIRST and _has_only(allowed, text)


def _is_number(text: str) -> bool:
    """Tell whether it is one that may end a name."""
    return 0 < len(text) < LONGEST_NAME and _has_only(_DIGITS, text)


def _has_only(characters: str, text: str) -> bool:
    """Tell whether all of a text is made of some characters."""
    return not text.strip(characters)


def short_name(name: str, pool_type: str) -> str:
    """Return a resource's name as its pool shows it: ``--00`` of ``<type>--00``."""
    begin = f"{pool_type}--"
    return name[len(pool_type) :] if name.startswith(begin) and len(name) > len(begin) else name


def short_handle(handle_id: str, pool_type: str) -> str:
    """Return a handle's id as its pool shows it: ``aB3xYz`` of ``<type>-aB3xYz``."""
    begin = f"{pool_type}-"
    return handle_id[len(begin) :] if handle_id.startswith(begin) else handle_id
