"""What scripts/build-pyz leaves out of modules of others."""

from __future__ import annotations

import ast

import pytest

from scripts.pyz_strip import NOTICE, strip

MODULE = b"""#!/usr/bin/env python
# Copyright: somebody

'''What it is.

It's long.'''
from __future__ import annotations  # first

import re  # "quoted"


class Error(Exception):
    \"\"\"Only this.\"\"\"


class C:
    "Short."

    # said of x
    x = "# no comment"; y = '''neither
    # this
    '''  # but this is

    def f(self, a="\\"# neither"):  # \xc3\xa4
        r'''Raw \\' and so on.'''
        try:
            def g(): \"\"\"On one line.\"\"\"
        finally:
            return (a,  # in brackets
                    g)
"""
STRIPPED = b"""#!/usr/bin/env python
# Copyright: somebody




from __future__ import annotations

import re


class Error(Exception):
    pass


class C:



    x = "# no comment"; y = '''neither
    # this
    '''

    def f(self, a="\\"# neither"):

        try:
            def g(): pass
        finally:
            return (a,
                    g)
"""


def test_comments_and_docstrings_go_and_all_else_stays_in_its_line() -> None:
    ast.parse(MODULE)
    assert strip("a/b.py", MODULE).splitlines() == (STRIPPED + NOTICE).splitlines()


@pytest.mark.parametrize("source", [b"", b"# Copyright\n", b"x = '#'\n", b"'text'.upper()\n"])
def test_what_has_nothing_of_that_stays_as_it_is(source: bytes) -> None:
    assert strip("b.py", source) == source


def test_only_the_head_of_metadata_is_kept() -> None:
    content = b"Name: x\nLicense: MIT\n\n# How to use it\n"
    assert strip("x-1.dist-info/METADATA", content) == b"Name: x\nLicense: MIT\n"
    assert strip("x-1.dist-info/LICENSE", content) == content


def test_certificates_lose_what_is_said_of_them() -> None:
    content = b"\n# Issuer: x\n-----BEGIN CERTIFICATE-----\nab#\n-----END CERTIFICATE-----\n"
    kept = b"-----BEGIN CERTIFICATE-----\nab#\n-----END CERTIFICATE-----\n"
    assert strip("certifi/cacert.pem", content) == kept


def test_of_our_own_nobody_needs_to_be_told() -> None:
    assert NOTICE in strip("a/b.py", MODULE)
    assert strip("leasectl/b.py", MODULE) == strip("a/b.py", MODULE)[: -len(NOTICE)]
