"""What setup.cfg can't say: man pages are made of the help when leasectl is built."""

from __future__ import annotations

import runpy
import tempfile
from distutils.command.install_data import install_data  # setuptools' own, from Python 3.12 on
from pathlib import Path

from setuptools import setup

HERE = Path(__file__).resolve().parent


class InstallManPages(install_data):
    """Makes the man pages just before they are put into the wheel."""

    def run(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            script = runpy.run_path(str(HERE / "scripts" / "man_pages.py"))
            pages = script["write_pages"](Path(folder))
            self.data_files = [("share/man/man1", sorted(map(str, pages)))]
            super().run()


# An empty list: the names are known only when they are made.
setup(cmdclass={"install_data": InstallManPages}, data_files=[("share/man/man1", [])])
