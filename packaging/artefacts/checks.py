"""Installs every artefact where nothing else is, runs it, and checks what accompanies it.

Each check is a function named `check_…` in one of the modules below. What a missing tool keeps from running is said, and
with CI=true it fails.
"""
import os
import pathlib
import subprocess
import tempfile
import time
import traceback

from . import archives, binaries, release
from .facts import DistError

#: How long a command may take on a slow machine.
TIMEOUT_SECONDS = 120
DEMO_ENDS = "Everything ended as it should."


class Skipped(Exception):
    """A tool is missing."""


class Bench:
    """The artefacts in a folder, and what checks share."""

    def __init__(self, folder, binary, artefacts):
        self.folder = folder
        self.binary = binary
        self.artefacts = artefacts
        self.platform = binary.platform

    def path(self, ending):
        """The one artefact whose name ends so, for the platform of this machine where there are several."""
        [name] = [name for name in self.artefacts if name.endswith(ending)]
        return self.folder / "artefacts" / name

    def new(self, name):
        """An empty folder."""
        folder = self.folder / name
        folder.mkdir()
        return folder

    def empty_root(self, name):
        """A root with nothing in it but the libraries that the binary asks for: none, if it is static."""
        root = self.new(name)
        for file in libraries(self.binary, self.folder / "kubegc"):
            path = root / file.name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(file.contents)
            path.chmod(file.mode)
        (root / "tmp").mkdir()
        return root


def run(command, expect=0, **options):
    """Runs a command, and returns what it prints. Another exit code is a failure with its output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, errors="replace", timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL, **options)
    assert done.returncode == expect, f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


def demo(command, **options):
    """Runs the demonstration, and checks how it ends."""
    output = run([*command, "demo"], **options)
    assert DEMO_ENDS in output, output


def need(*tools, root=False):
    """Skips the check where a tool is missing."""
    import shutil

    missing = [tool for tool in tools if shutil.which(tool) is None]
    if root and os.geteuid() != 0:
        missing.append("root")
    if missing:
        raise Skipped(", ".join(missing))


def libraries(binary, path):
    """The files that a binary which is not static loads, at their places."""
    if binary.static:
        return []
    found = set()
    for line in run(["ldd", path]).splitlines():
        found |= {word for word in line.split() if word.startswith("/")}
    return [archives.File(str(file)[1:], pathlib.Path(file).read_bytes(), archives.EXECUTABLE) for file in sorted(found)]


def _packaged(folder, path):
    binary = binaries.read(path, strip=binaries.of(path.read_bytes()).platform.system == "linux")
    kept = folder / "kubegc"
    kept.write_bytes(binary.contents)
    kept.chmod(archives.EXECUTABLE)
    made = release.make([binary], [kept], archives.QUICK, libraries(binary, kept))
    (folder / "artefacts").mkdir()
    for name, contents in made.items():
        (folder / "artefacts" / name).write_bytes(contents)
    return Bench(folder, binary, made)


def _all():
    from . import checks_install, checks_metadata, checks_operators

    for module in (checks_metadata, checks_install, checks_operators):
        for name, function in vars(module).items():
            if name.startswith("check_"):
                yield name.removeprefix("check_").replace("_", " "), function


def run_all(path, only):
    """Packages the binary, runs the checks, and returns how many failed."""
    passed, failed, skipped = 0, 0, []
    if not path.is_file():
        raise DistError(f"{path}: no such file; build it first: cargo build -p kubegc")
    with tempfile.TemporaryDirectory(prefix="kubegc-dist-") as folder:
        begun = time.monotonic()
        bench = _packaged(pathlib.Path(folder), path)
        linked = "static" if bench.binary.static else "dynamic"
        print(f"packaged a {linked} binary for {bench.platform.name}: {time.monotonic() - begun:.1f} s", flush=True)
        for name, function in _all():
            if only and only not in name:
                continue
            begun = time.monotonic()
            try:
                function(bench)
            except Skipped as missing:
                skipped.append(name)
                result = f"SKIPPED, for want of: {missing}"
            except Exception:
                failed += 1
                result = "FAILED\n" + traceback.format_exc()
            else:
                passed += 1
                result = "ok"
            print(f"{time.monotonic() - begun:6.1f} s  {name}: {result}", flush=True)
    if skipped and os.environ.get("CI") == "true":
        print(f"CI runs every check; skipped: {', '.join(skipped)}")
        failed += len(skipped)
        skipped = []
    if passed + failed + len(skipped) == 0:
        raise DistError(f"no check is called like {only!r}")
    print(f"{passed} passed, {failed} failed, {len(skipped)} skipped")
    return failed


def main(path, only=None):
    """The exit code of `scripts/dist test`."""
    return 1 if run_all(path, only) else 0
