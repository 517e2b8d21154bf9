"""What is shipped beside the binary: man pages, completions, licence. The binary itself writes the first two."""
import dataclasses
import pathlib
import subprocess
import tempfile

from . import archives
from .archives import EXECUTABLE, File
from .facts import NAME, ROOT, VERSION, DistError, source_date

SHELLS = ("bash", "zsh", "fish")
TIMEOUT_SECONDS = 60


@dataclasses.dataclass(frozen=True)
class Contents:
    """Files that are the same on every platform."""

    man_pages: dict  # name to bytes
    completions: dict  # shell to bytes
    license: bytes

    def shared(self):
        """Man pages and completions by their place below a prefix such as /usr/local."""
        return {
            **{f"share/man/man1/{name}": page for name, page in self.man_pages.items()},
            f"share/bash-completion/completions/{NAME}": self.completions["bash"],
            f"share/zsh/site-functions/_{NAME}": self.completions["zsh"],
            f"share/fish/vendor_completions.d/{NAME}.fish": self.completions["fish"],
        }


def _printed(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, timeout=TIMEOUT_SECONDS)
    if done.returncode != 0:
        raise DistError(f"{binary} {' '.join(map(str, arguments))}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout


def of(binary):
    """Asks a binary that runs on this machine."""
    with tempfile.TemporaryDirectory() as folder:
        _printed(binary, "man", folder)
        pages = {page.name: page.read_bytes() for page in sorted(pathlib.Path(folder).iterdir())}
    said = _printed(binary, "--version").decode().split()
    if said != [NAME, VERSION]:
        raise DistError(f"{binary} is {' '.join(said)}, and the sources are {NAME} {VERSION}: build it again")
    completions = {shell: _printed(binary, "completion", shell) for shell in SHELLS}
    return Contents(pages, completions, (ROOT / "LICENSE").read_bytes())


def tarball(binary, contents, effort=archives.THOROUGH):
    """The archive that people, krew, Homebrew and `cargo binstall` download: one folder with everything."""
    top = f"{NAME}-{VERSION}-{binary.platform.name}"
    files = [
        File(f"{top}/{binary.platform.program}", binary.contents, EXECUTABLE),
        File(f"{top}/LICENSE", contents.license),
        File(f"{top}/README.md", (ROOT / "README.md").read_bytes()),
        *(File(f"{top}/man/{name}", page) for name, page in contents.man_pages.items()),
        *(File(f"{top}/completions/{NAME}.{shell}", text) for shell, text in contents.completions.items()),
    ]
    date = source_date()
    return f"{top}.tar.gz", archives.gz(archives.tar(archives.folders_of(files), date), effort)
