"""What a binary is for and what it needs, read from its header; and how it is built."""
import dataclasses
import os
import pathlib
import platform
import shutil
import struct
import subprocess

from .facts import ROOT, DistError, Platform, source_date

ELF, MACH_O, PE = b"\x7fELF\x02\x01", b"\xcf\xfa\xed\xfe", b"PE\0\0"
#: e_machine of ELF, cputype of Mach-O, and Machine of PE.
ELF_MACHINES = {62: "amd64", 183: "arm64"}
MACH_MACHINES = {0x01000007: "amd64", 0x0100000C: "arm64"}
PE_MACHINES = {0x8664: "amd64", 0xAA64: "arm64"}
#: Where a program for Windows says at which offset its header is.
PE_OFFSET = 0x3C
#: The C compiler and linker for Windows, and the package of Debian that has them.
MINGW, MINGW_PACKAGE = "x86_64-w64-mingw32-gcc", "gcc-mingw-w64-x86-64"
PT_INTERP = 3
SHT_SYMTAB = 2


@dataclasses.dataclass(frozen=True)
class Binary:
    """The program, and what its header says."""

    contents: bytes
    platform: Platform
    static: bool


def read(path, strip=False):
    """Reads a binary; `strip` leaves its symbols out, which is for debug builds."""
    path = pathlib.Path(path)
    if strip:
        contents = _stripped(path)
    else:
        try:
            contents = path.read_bytes()
        except OSError as error:
            raise DistError(f"{path}: {error.strerror}; build it first: scripts/dist build") from error
    return of(contents, path)


def _stripped(path):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "kubegc")
        done = subprocess.run(["strip", "-o", out, path], capture_output=True, text=True)
        if done.returncode != 0:
            raise DistError(f"{path}: {done.stderr.strip()}")
        return out.read_bytes()


def of(contents, path="the binary"):
    """What the header of a program says."""
    if contents[:6] == ELF:
        machine = ELF_MACHINES.get(struct.unpack_from("<H", contents, 18)[0])
        table, (size, count) = struct.unpack_from("<Q", contents, 32)[0], struct.unpack_from("<HH", contents, 54)
        kinds = [struct.unpack_from("<I", contents, table + number * size)[0] for number in range(count)]
        system, static = "linux", PT_INTERP not in kinds
    elif contents[:4] == MACH_O:
        machine = MACH_MACHINES.get(struct.unpack_from("<I", contents, 4)[0])
        system, static = "darwin", False
    elif contents[:2] == b"MZ" and contents[(start := struct.unpack_from("<I", contents, PE_OFFSET)[0]):start + 4] == PE:
        machine = PE_MACHINES.get(struct.unpack_from("<H", contents, start + 4)[0])
        system, static = "windows", False
    else:
        raise DistError(f"{path}: neither a 64-bit little-endian ELF file, nor a Mach-O file, nor a program for Windows")
    if machine is None:
        raise DistError(f"{path}: the processor is not known; expected amd64 or arm64")
    return Binary(contents, Platform(system, machine), static)


def has_symbols(contents):
    """Whether an ELF file has a table of symbols, which is a sixth of the program and for debuggers alone."""
    if contents[:6] != ELF:
        return False
    table, (size, count) = struct.unpack_from("<Q", contents, 40)[0], struct.unpack_from("<HH", contents, 58)
    kinds = [struct.unpack_from("<I", contents, table + number * size + 4)[0] for number in range(count)]
    return SHT_SYMTAB in kinds


def host():
    """The platform of this machine."""
    machines = {"x86_64": "amd64", "amd64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
    machine = machines.get(platform.machine().lower())
    system = platform.system().lower()
    if machine is None or system not in ("linux", "darwin"):
        raise DistError(f"{platform.system()} on {platform.machine()}: expected Linux or macOS on amd64 or arm64")
    return Platform(system, machine)


def build_command(target, cargo_home, target_dir):
    """The command and the environment of a build that gives the same bytes in any folder.

    Linux binaries are static against glibc (2.36 or newer, whose static form resolves names by itself and reads packed
    relocations, which take a few kilobytes in place of megabytes; musl's allocator is slow with many threads).
    """
    # Of two prefixes that fit, rustc takes the last.
    flags = [f"--remap-path-prefix={path}={name}" for path, name in
             ((cargo_home, "/cargo"), (ROOT, "/kubegc"), (target_dir, "/target"))]
    environment = {
        "SOURCE_DATE_EPOCH": str(source_date()),
        # What C code says of its files.
        "CFLAGS": f"-ffile-prefix-map={cargo_home}=/cargo -ffile-prefix-map={ROOT}=/kubegc",
        "CARGO_INCREMENTAL": "0",
        "CARGO_TARGET_DIR": str(target_dir),
        "LC_ALL": "C",
        "TZ": "UTC",
    }
    if target.endswith("-linux-gnu"):
        flags += ["-Ctarget-feature=+crt-static", "-Clink-arg=-Wl,--build-id=none",
                  "-Clink-arg=-Wl,-z,pack-relative-relocs"]
    environment["CARGO_ENCODED_RUSTFLAGS"] = "\x1f".join(flags)
    command = ["cargo", "build", "--profile", "dist", "--locked", "--package", "kubegc", "--bin", "kubegc", "--target", target]
    return command, environment


def _check_toolchain(target):
    """What another system's programs are built with must be here."""
    if not target.endswith("-windows-gnu"):
        return
    if shutil.which(MINGW) is None:
        raise DistError(f"{target}: {MINGW} is missing; Debian has it in {MINGW_PACKAGE}")
    libraries = subprocess.run(["rustc", "--print", "target-libdir", "--target", target], cwd=ROOT, capture_output=True, text=True)
    if libraries.returncode != 0 or not pathlib.Path(libraries.stdout.strip()).is_dir():
        raise DistError(f"{target}: the standard library of Rust for it is missing; run rustup target add {target}")


def build(target=None, target_dir=None):
    """Builds the binary of a target (by default of this machine), and returns its path."""
    target = target or host().rust_target
    _check_toolchain(target)
    home = pathlib.Path(os.environ.get("CARGO_HOME") or pathlib.Path.home() / ".cargo").resolve()
    target_dir = pathlib.Path(target_dir or ROOT / "target" / "dist").resolve()
    command, environment = build_command(target, home, target_dir)
    done = subprocess.run(command, cwd=ROOT, env={**os.environ, **environment})
    if done.returncode != 0:
        raise DistError(f"{' '.join(command)}: failed")
    binary = target_dir / target / "dist" / ("kubegc.exe" if "-windows-" in target else "kubegc")
    if "-linux-" in target and has_symbols(binary.read_bytes()):
        raise DistError(f"{binary}: it has symbols; expected the profile `dist` to leave them out for the package kubegc, too")
    return binary
