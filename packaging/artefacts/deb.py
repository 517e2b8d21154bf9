"""A Debian package: the binary, kubectl's plugin, man pages, completions and systemd units."""
import hashlib

from . import archives
from .archives import EXECUTABLE, File
from .facts import AUTHORS, DEBIAN_VERSION, DESCRIPTION, LICENSE, NAME, REPOSITORY, ROOT, SUMMARY, source_date

REVISION = 1
#: Units, by the file that defines them. None is started by installing the package.
UNITS = {
    "kubegc-node.service": ROOT / "deploy/node/kubegc-node.service",
    "kubegc-run.service": ROOT / "packaging/systemd/kubegc-run.service",
    "kubegc-up.service": ROOT / "packaging/systemd/kubegc-up.service",
}
SCRIPTS = ROOT / "packaging" / "debian"


def _wrapped(text, width=78):
    import textwrap

    return "\n".join(f" {line}" for line in textwrap.wrap(text, width))


def _copyright():
    return (
        "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n"
        f"Upstream-Name: {NAME}\nSource: {REPOSITORY}\n\n"
        f"Files: *\nCopyright: {AUTHORS}\nLicense: {LICENSE}\n"
        " On Debian systems, the full text is in /usr/share/common-licenses/Apache-2.0.\n"
    ).encode()


def _files(binary, contents, effort):
    share = "./usr/share"
    doc = f"{share}/doc/{NAME}"
    changes = (ROOT / "CHANGELOG.md").read_bytes()
    files = [
        File(f"./usr/bin/{NAME}", binary.contents, EXECUTABLE),
        # `kubectl gc` finds it by this name.
        File("./usr/bin/kubectl-gc", target=NAME),
        # It asks this one for completions.
        File("./usr/bin/kubectl_complete-gc", target=NAME),
        File(f"{doc}/copyright", _copyright()),
        File(f"{doc}/changelog.gz", archives.gz(changes, effort)),
        File(f"{share}/bash-completion/completions/{NAME}", contents.completions["bash"]),
        File(f"{share}/zsh/vendor-completions/_{NAME}", contents.completions["zsh"]),
        File(f"{share}/fish/vendor_completions.d/{NAME}.fish", contents.completions["fish"]),
    ]
    for name, page in contents.man_pages.items():
        files.append(File(f"{share}/man/man1/{name}.gz", archives.gz(page, effort)))
    for unit, source in UNITS.items():
        # In /usr/local is what an administrator has put there.
        text = source.read_text().replace("/usr/local/bin/", "/usr/bin/")
        files.append(File(f"./usr/lib/systemd/system/{unit}", text.encode()))
        settings = unit.removesuffix(".service")
        variable = settings.upper().replace("-", "_") + "_OPTIONS"
        default = f'# Options of {unit}: see `systemctl cat {unit}`.\n#{variable}=""\n'
        files.append(File(f"./etc/default/{settings}", default.encode()))
    return files


def package(binary, contents, effort=archives.THOROUGH):
    """The package's name and bytes."""
    date = source_date()
    files = _files(binary, contents, effort)
    size = sum(len(file.contents or b"") for file in files)
    # A static binary needs nothing; another one needs the C library that it was linked with.
    depends = "" if binary.static else "Depends: libc6, libgcc-s1\n"
    control = (
        f"Package: {NAME}\nVersion: {DEBIAN_VERSION}-{REVISION}\nArchitecture: {binary.platform.machine}\n"
        f"Maintainer: {AUTHORS} <kubegc@users.noreply.github.com>\nInstalled-Size: {-(-size // 1024)}\n{depends}"
        f"Suggests: kubernetes-client\nSection: admin\nPriority: optional\nHomepage: {REPOSITORY}\n"
        f"Description: {SUMMARY}\n{_wrapped(DESCRIPTION)}\n"
    )
    regular = [file for file in files if file.contents is not None]
    sums = "".join(f"{hashlib.md5(file.contents).hexdigest()}  {file.name[2:]}\n" for file in regular)
    settings = "".join(f"{file.name[1:]}\n" for file in regular if file.name.startswith("./etc/"))
    meta = [
        File("./control", control.encode()),
        File("./md5sums", sums.encode()),
        File("./conffiles", settings.encode()),
        *(File(f"./{name}", (SCRIPTS / name).read_bytes(), EXECUTABLE) for name in ("postinst", "prerm")),
    ]
    pack, suffix = (archives.gz, "gz") if effort == archives.QUICK else (archives.xz, "xz")
    parts = [
        File("debian-binary", b"2.0\n"),
        File(f"control.tar.{suffix}", pack(archives.tar(meta, date), effort)),
        File(f"data.tar.{suffix}", pack(archives.tar(archives.folders_of(files), date), effort)),
    ]
    return f"{NAME}_{DEBIAN_VERSION}-{REVISION}_{binary.platform.machine}.deb", archives.ar(parts, date)
