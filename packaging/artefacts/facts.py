"""What every artefact says of kubegc, read from the one place that defines it."""
import dataclasses
import os
import pathlib
import re
import subprocess
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "kubegc"
SUMMARY = "Kubernetes garbage collection in one binary, with an embedded API server"
DESCRIPTION = (
    "Everything that Kubernetes calls garbage collection: owner references and their cascading deletion, the cluster "
    "collectors, and image and container collection on nodes. It includes a Kubernetes-compatible API server, for tests."
)
LICENSE = "Apache-2.0"


class DistError(Exception):
    """A line for the person who runs the script: what is wrong, and what to do."""


def _workspace():
    return tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]


VERSION = _workspace()["version"]
REPOSITORY = _workspace()["repository"]
AUTHORS = _workspace()["authors"][0]
#: The same in the words of Debian and of Python, where a pre-release comes before its release in other ways.
DEBIAN_VERSION = VERSION.replace("-", "~")
PYTHON_VERSION = re.sub(r"-(a|b|rc)[a-z]*\.?(\d+)$", r"\1\2", VERSION)
DOWNLOADS = f"{REPOSITORY}/releases/download"


@dataclasses.dataclass(frozen=True, order=True)
class Platform:
    """An operating system and a processor, in the words of each packager."""

    system: str  # as Go names it: linux, darwin, windows
    machine: str  # as Go and Debian name it: amd64, arm64

    @property
    def name(self):
        return f"{self.system}-{self.machine}"

    @property
    def npm_cpu(self):
        return {"amd64": "x64", "arm64": "arm64"}[self.machine]

    @property
    def rust_target(self):
        machine = {"amd64": "x86_64", "arm64": "aarch64"}[self.machine]
        return machine + {"linux": "-unknown-linux-gnu", "darwin": "-apple-darwin", "windows": "-pc-windows-gnu"}[self.system]

    @property
    def program(self):
        """The name of the program's file."""
        return NAME + self.extension

    @property
    def extension(self):
        """What the names of programs end in."""
        return ".exe" if self.system == "windows" else ""


#: Every platform of a release.
PLATFORMS = [Platform(system, machine) for system in ("darwin", "linux") for machine in ("amd64", "arm64")] + [Platform("windows", "amd64")]


def source_date():
    """Seconds since 1970 that stand in every artefact: $SOURCE_DATE_EPOCH, or the time of the commit."""
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given is not None:
        if not given.isdecimal():
            raise DistError(f"SOURCE_DATE_EPOCH={given}: expected seconds since 1970")
        return int(given)
    return int(git("log", "-1", "--format=%ct") or 0)


def git(*arguments):
    """What git prints; empty outside a clone."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""
