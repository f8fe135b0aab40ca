"""What pyproject.toml cannot declare, from build_tools/: the package's page, and with MINIBROKER_COMPILE=1 its compiled
form.
"""

from __future__ import annotations

import os
import sys
import tomllib
from pathlib import Path
from typing import Any

from setuptools import setup

sys.path.insert(0, str(Path(__file__).parent))  # pip builds without it

from build_tools.package_page import page
from build_tools.setup_commands import BuildCompiledForm, CompiledDistribution, SourceDistribution

project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
compiled: dict[str, Any] = {}
if os.environ.get("MINIBROKER_COMPILE") == "1":
    needed = [*project["dependencies"], *project["optional-dependencies"]["compile"]]  # the profile's broker runs
    compiled = {"distclass": CompiledDistribution, "ext_modules": [], "setup_requires": needed}
setup(
    long_description=page(Path("README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")),
    long_description_content_type="text/markdown",
    cmdclass={"sdist": SourceDistribution, "build_ext": BuildCompiledForm},
    **compiled,
)
