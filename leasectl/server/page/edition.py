"""How the pools are at one instant, as the page shows it, and what of that is new to whom."""

from __future__ import annotations

import gzip
import json
import re

from leasectl import __version__
from leasectl.server.page.document import document
from leasectl.server.page.markup import joined, tag
from leasectl.server.page.sections import Section
from leasectl.server.page.sign_in import sign_out_form
from leasectl.system.clock import rfc3339
from leasectl.typed.tuples import NamedTuple

_QUICKLY = 4  # of gzip's levels; rows are alike, so the slower ones gain little
_NUMBER = re.compile("[0-9]{1,12}", re.ASCII)


class Body(NamedTuple):
    """The bytes of an answer, as they are and packed."""

    plain: bytes
    packed: bytes


def body_of(text: str) -> Body:
    """Pack a text."""
    plain = text.encode()
    return Body(plain, gzip.compress(plain, _QUICKLY, mtime=0))


class Edition(NamedTuple):
    """What the page shows until something changes.

    Args:
        server: Tells the editions of one server from those of another.
        number: Grows.
        title: Of the page.
        backend: Whose pools they are.
        problem: Why it can't be told how they are; else empty.
        sections: What there is to show.
        changed: Since which number each of them has been as it is.
    """

    server: str
    number: int = 0
    title: str = "leasectl"
    backend: str = ""
    problem: str = ""
    sections: tuple[Section, ...] = ()
    changed: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """What a page asks by for what is newer."""
        return f"{self.server}.{self.number}"

    def succeeded_by(self, **changes: object) -> Edition:
        """The next edition, or this one if the next would look the same.

        Args:
            changes: In what it differs, by the names of fields.
        """
        found = self._replace(**changes)  # type: ignore[arg-type]  # checked where it is called
        if found._looks() == self._looks():
            return self._replace(sections=found.sections)  # with the newer times
        number = self.number + 1
        before = {each.id: (each.facts, n) for each, n in zip(self.sections, self.changed)}
        changed = []
        for each in found.sections:
            facts, since = before.get(each.id, (None, number))
            changed.append(since if facts == each.facts else number)
        return found._replace(number=number, changed=tuple(changed))

    def _looks(self) -> object:
        return self.title, self.problem, [(each.id, each.facts) for each in self.sections]

    def whole(self, now: float, *, can_sign_out: bool) -> str:
        """The whole page.

        Args:
            now: Wall clock, seconds since the epoch.
            can_sign_out: There is somebody who has signed in.
        """
        head = tag(
            "header",
            tag("h1", "leasectl"),
            tag("span", self.backend, class_="backend"),
            tag("span", _seen_at(now), id="state", class_="state", role="status"),
        )
        problem = tag("p", self.problem, id="problem", class_="problem", role="alert")
        sections = joined((each.write(now) for each in self.sections), "\n")
        main = tag("main", sections, data_edition=self.name, data_at=f"{now:.3f}")
        version = tag("span", f"leasectl {__version__}")
        footer = tag("footer", version, sign_out_form() if can_sign_out else None)
        parts = (head, tag("div", problem, class_="banner"), main, footer)
        return document(self.title, joined(parts, "\n"), is_refreshed=True)

    def last_seen(self, after: str) -> int:
        """The last change of a section that a page knows; -1 for none.

        Args:
            after: The name of the edition that it shows; all is new after one of another server.
        """
        server, _, number = after.partition(".")
        if server != self.server or not _NUMBER.fullmatch(number):
            return -1
        return max((each for each in self.changed if each <= int(number)), default=-1)

    def news(self, seen: int, now: float) -> str:
        """What is new to a page, as JSON for its script.

        Args:
            seen: As `last_seen` has it.
            now: Wall clock, seconds since the epoch.
        """
        told = {
            "edition": self.name,
            "at": round(now, 3),
            "title": self.title,
            "problem": self.problem,
            "order": [each.id for each in self.sections],
            "changed": {
                each.id: each.write(now)
                for each, since in zip(self.sections, self.changed)
                if since > seen
            },
        }
        return json.dumps(told, ensure_ascii=False, separators=(",", ":"))


def _seen_at(now: float) -> str:
    return f"as of {(rfc3339(now) or '')[11:19]} UTC"
