"""The commands of setuptools: an sdist that is the clone's tree, and a wheel that is the compiled form."""

from __future__ import annotations

import os
from pathlib import Path

from setuptools import Distribution
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

from build_tools.compiled_form import Profile, extensions, optimisation

PACKAGE = Path("src/minibroker")


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

    It is compiled twice, the second time by the profile of a load on what the first has made (`compiled_form.py`).
    """

    def finalize_options(self) -> None:
        if self.inplace or getattr(self, "editable_mode", False):
            raise SystemExit("an editable installation stays pure Python; leave MINIBROKER_COMPILE out")
        super().finalize_options()

    def run(self) -> None:
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
