"""Compiles the hot modules when a wheel is built; hatch calls it, also for `pip install`.

The modules are those of `include` in pyproject.toml. mypyc works on a copy of the sources in a
temporary folder, since it leaves its extensions beside them, where Python would prefer them to what
is edited; the wheel takes them from there. Where they cannot be compiled (no C compiler, a Python
that is not CPython) the wheel has the plain sources, and a line says so.

`PENSTOCK_COMPILE=1` makes it an error when they cannot be compiled, `PENSTOCK_COMPILE=0` leaves
them as they are. An editable install runs the sources of the checkout and is never compiled.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

SWITCH = "PENSTOCK_COMPILE"
SHOWN_LINES = 20
SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(
    name="penstock",
    packages=[],
    package_dir={{"": "src"}},
    ext_modules=mypycify({arguments!r}, opt_level="3"),
)
"""


class NotCompiled(Exception):
    """The hot modules cannot be compiled here; the sentence says why."""


class CompileHook(BuildHookInterface):
    _folder: str | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        wanted = os.environ.get(SWITCH, "")
        if version == "editable" or wanted == "0":
            return
        self._folder = tempfile.mkdtemp(prefix="penstock-compile-")
        try:
            extensions = self._compiled(Path(self._folder))
        except NotCompiled as reason:
            if wanted == "1":
                raise SystemExit(f"the hot modules cannot be compiled: {reason}") from None
            self.app.display_warning(
                f"the hot modules are not compiled, so a node needs about twice the processor "
                f"time: {reason}"
            )
            return
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
        build_data["force_include"].update(extensions)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def _compiled(self, folder: Path) -> dict[str, str]:
        """Compile in `folder`; where each extension lies, and its place in the wheel."""
        if sys.implementation.name != "cpython":
            raise NotCompiled(f"mypyc needs CPython, and this is {sys.implementation.name}")
        shutil.copytree(
            Path(self.root, "src"), folder / "src", ignore=shutil.ignore_patterns("__pycache__")
        )
        arguments = [*self.config["mypy-args"], *self.config["include"]]
        (folder / "setup.py").write_text(SETUP.format(arguments=arguments))
        run = subprocess.run(
            [sys.executable, "setup.py", "-q", "build_ext", "--build-lib", "built"],
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if run.returncode:
            raise NotCompiled("\n".join(["mypyc failed", *run.stdout.splitlines()[-SHOWN_LINES:]]))
        built = folder / "built"
        return {str(path): str(path.relative_to(built)) for path in built.rglob("*.so")}
