"""Archives that are the same for the same files: no clock, no owner, no order but that of the names."""
import dataclasses
import gzip
import io
import lzma
import tarfile
import zipfile

REGULAR, EXECUTABLE, FOLDER = 0o644, 0o755, 0o755
#: gzip's and xz's effort, for releases and for tests.
THOROUGH, QUICK = 9, 1


@dataclasses.dataclass(frozen=True)
class File:
    """An entry of an archive: a file, a folder (`contents` is None), or a symbolic link."""

    name: str
    contents: bytes | None = None
    mode: int = REGULAR
    target: str | None = None


def folders_of(files):
    """The files, with the folders that hold them in front."""
    seen, out = set(), []
    for file in sorted(files, key=lambda one: one.name):
        parts = file.name.split("/")[:-1]
        for depth in range(1, len(parts) + 1):
            folder = "/".join(parts[:depth])
            if folder not in ("", ".") and folder not in seen:
                seen.add(folder)
                out.append(File(folder, None, FOLDER))
        out.append(file)
    return out


def tar(files, date):
    """A tar archive of the files, in their order."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for file in files:
            entry = tarfile.TarInfo(file.name)
            entry.mode, entry.mtime = file.mode, date
            if file.target is not None:
                entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, file.target, 0o777
                archive.addfile(entry)
            elif file.contents is None:
                entry.type = tarfile.DIRTYPE
                archive.addfile(entry)
            else:
                entry.size = len(file.contents)
                archive.addfile(entry, io.BytesIO(file.contents))
    return out.getvalue()


def gz(contents, effort=THOROUGH):
    """Compressed by gzip, without a name or a time."""
    return gzip.compress(contents, effort, mtime=0)


def xz(contents, effort=THOROUGH):
    """Compressed by xz."""
    return lzma.compress(contents, preset=effort)


def ar(files, date):
    """An ar archive, as a .deb is."""
    out = [b"!<arch>\n"]
    for file in files:
        size = len(file.contents)
        out.append(f"{file.name:<16}{date:<12}{0:<6}{0:<6}{0o100644:<8o}{size:<10}`\n".encode())
        out.append(file.contents + b"\n" * (size % 2))
    return b"".join(out)


def zipped(files, date, effort=THOROUGH):
    """A zip archive, as a wheel is."""
    import time

    # The format counts from 1980.
    stamp = time.gmtime(max(date, 315532800))[:6]
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        for file in files:
            entry = zipfile.ZipInfo(file.name, stamp)
            entry.external_attr = (0o100000 | file.mode) << 16
            entry.create_system = 3  # Unix, whatever it is made on
            archive.writestr(entry, file.contents, zipfile.ZIP_DEFLATED, effort)
    return out.getvalue()
