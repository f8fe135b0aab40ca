"""What pyproject.toml cannot declare: the package's page, a source distribution that is the clone's tree, and with
MINIBROKER_COMPILE=1 the compiled form (compiled_form.py).

The page is the README. Its links lead into the repository: with a `Source` in [project.urls] they become absolute,
without one they become the paths that the source distribution has, and its pictures are left out.
"""

from __future__ import annotations

import os
import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from setuptools import Distribution, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

if TYPE_CHECKING:
    from compiled_form import Profile

PACKAGE = Path("src/minibroker")
LINK = re.compile(r"\[([^]]+)\]\((?![a-z]+:|#)([^)]+)\)")
PICTURE = re.compile(r"(?:!\[[^]]+\]\((?![a-z]+:)[^)]+\)|<picture>.*?</picture>)\n*", re.DOTALL)
PATH_OF_PICTURE = re.compile(r'(!\[[^]]+\]\(|src="|srcset=")(?![a-z]+:)')
FILES_OF_SOURCE = "/blob/main/"
PICTURES_OF_SOURCE = "/raw/main/"


def page(readme: str, source: str | None) -> str:
    """The README for a reader who has no clone."""
    if source is None:
        readme = PICTURE.sub("", readme)
        return LINK.sub(lambda link: f"`{link[2]}`" if link[1] == link[2] else f"{link[1]} (`{link[2]}`)", readme)
    here = source.rstrip("/")
    readme = PATH_OF_PICTURE.sub(rf"\1{here}{PICTURES_OF_SOURCE}", readme)
    return LINK.sub(rf"[\1]({here}{FILES_OF_SOURCE}\2)", readme)


class SourceDistribution(sdist):
    """Keeps the links of src/minibroker: the unpacked tree is the clone's, and its tests run in it."""

    def make_release_tree(self, base_dir: str, files: list[str]) -> None:
        links = [path for path in PACKAGE.iterdir() if path.is_symlink()]
        behind_links = tuple(f"{link}{os.sep}" for link in links)
        super().make_release_tree(base_dir, [name for name in files if not name.startswith(behind_links)])
        for link in links:
            (Path(base_dir) / link).symlink_to(link.readlink())


class CompiledDistribution(Distribution):
    """Its wheel is for one platform."""

    def has_ext_modules(self) -> bool:
        return True


class BuildCompiledForm(build_ext):
    """Generates C code when it is built, not when pip asks for the package's metadata.

    It is compiled twice, the second time by the profile of a load on what the first has made (compiled_form.py).
    """

    def finalize_options(self) -> None:
        if self.inplace or getattr(self, "editable_mode", False):
            raise SystemExit("an editable installation stays pure Python; leave MINIBROKER_COMPILE out")
        super().finalize_options()

    def run(self) -> None:
        sys.path.insert(0, str(Path(__file__).parent))
        from compiled_form import Profile, extensions, optimisation

        level = f"O{optimisation()}"
        build = Path("build", level).absolute()
        self.distribution.ext_modules = extensions(build)
        profile = Profile(build) if Profile.is_wanted() else None
        is_new = profile is not None and self.renewed(profile)
        self.prepare()
        self.build_temp = str(Path(self.build_temp, level))
        compiled_at = Path("build", "level")
        if not compiled_at.exists() or compiled_at.read_text() != level:
            for library in Path(self.build_lib).rglob("*.so"):  # setuptools takes one that is newer than its source
                library.unlink()
            compiled_at.write_text(level)
        self.force = self.force or is_new
        if profile is None:
            self.compile([])
        else:
            profile.put_beside(Path(self.build_temp))
            self.compile(Profile.USING)
            profile.keep()

    def renewed(self, profile: Profile) -> bool:
        """Take a profile of what is compiled with counters, unless there is one of this code."""
        if profile.is_of_this_code():
            return False
        self.prepare()
        self.build_lib, self.build_temp = str(profile.lib), str(profile.temp)
        self.compile(profile.COUNTING)
        profile.take()
        return True

    def prepare(self) -> None:
        """Make ready to compile the extension modules that are known now."""
        self.initialize_options()
        super().finalize_options()
        self.parallel = self.parallel or True

    def compile(self, flags: list[str]) -> None:
        """Compile them with these flags more."""
        before = [(each, each.extra_compile_args, each.extra_link_args or []) for each in self.extensions]
        for each, compile_args, link_args in before:
            each.extra_compile_args, each.extra_link_args = [*compile_args, *flags], [*link_args, *flags]
        super().run()
        for each, compile_args, link_args in before:
            each.extra_compile_args, each.extra_link_args = compile_args, link_args


def compiled() -> dict[str, Any]:
    """What a setup of the compiled form has more than one of the pure form."""
    if os.environ.get("MINIBROKER_COMPILE") != "1":
        return {}
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    needed = [*project["dependencies"], *project["optional-dependencies"]["compile"]]  # the profile's broker runs
    return {"distclass": CompiledDistribution, "ext_modules": [], "setup_requires": needed}


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["project"]
    setup(
        long_description=page(Path("README.md").read_text(encoding="utf-8"), project.get("urls", {}).get("Source")),
        long_description_content_type="text/markdown",
        cmdclass={"sdist": SourceDistribution, "build_ext": BuildCompiledForm},
        **compiled(),
    )
