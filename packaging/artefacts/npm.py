"""Packages for npm: one for each platform with the binary, and `kubegc`, which depends on all of them optionally."""
import json

from . import archives
from .archives import EXECUTABLE, REGULAR, File
from .facts import AUTHORS, LICENSE, NAME, REPOSITORY, ROOT, SUMMARY, VERSION

SOURCES = ROOT / "packaging" / "npm"
MODULES = ("binary.js", "cli.js", "index.d.ts", "index.js", "README.md")
SYSTEMS = ("darwin", "linux")
CPUS = ("arm64", "x64")
#: npm gives every entry this time, so that the contents alone decide the bytes.
DATE = 499162500


def _common():
    return {
        "version": VERSION,
        "license": LICENSE,
        "author": AUTHORS,
        "repository": {"type": "git", "url": f"git+{REPOSITORY}.git"},
        "homepage": REPOSITORY,
    }


def _packed(manifest, files, effort):
    text = json.dumps(manifest, indent=2) + "\n"
    files = [File("package/package.json", text.encode()), *files]
    return archives.gz(archives.tar(files, DATE), effort)


def platform_package(binary, contents, effort=archives.THOROUGH):
    """The package that carries the binary: its file name and bytes."""
    platform = f"{binary.platform.system}-{binary.platform.npm_cpu}"
    manifest = {
        "name": f"@{NAME}/{platform}",
        "description": f"The program of {NAME} for {platform}",
        **_common(),
        "os": [binary.platform.system],
        "cpu": [binary.platform.npm_cpu],
        "preferUnplugged": True,
    }
    if not binary.static and binary.platform.system == "linux":
        manifest["libc"] = ["glibc"]
    files = [
        File("package/LICENSE", contents.license),
        File(f"package/bin/{NAME}", binary.contents, EXECUTABLE),
    ]
    return f"{NAME}-{platform}-{VERSION}.tgz", _packed(manifest, files, effort)


def main_package(contents, effort=archives.THOROUGH):
    """The package `kubegc`: `npx kubegc`, and `start()` for tests."""
    manifest = {
        "name": NAME,
        "description": SUMMARY,
        **_common(),
        "keywords": ["kubernetes", "garbage-collection", "testing", "operator", "envtest"],
        "type": "module",
        "bin": {NAME: "cli.js"},
        "man": [f"./man/{name}" for name in sorted(contents.man_pages)],
        "exports": {".": {"types": "./index.d.ts", "default": "./index.js"}},
        "types": "index.d.ts",
        "engines": {"node": ">=18"},
        "optionalDependencies": {f"@{NAME}/{system}-{cpu}": VERSION for system in SYSTEMS for cpu in CPUS},
    }
    files = [
        File("package/LICENSE", contents.license),
        *(File(f"package/man/{name}", page) for name, page in sorted(contents.man_pages.items())),
        *(File(f"package/completions/{NAME}.{shell}", text) for shell, text in contents.completions.items()),
    ]
    for name in MODULES:
        mode = EXECUTABLE if name == "cli.js" else REGULAR
        files.append(File(f"package/{name}", (SOURCES / name).read_bytes(), mode))
    return f"{NAME}-npm-{VERSION}.tgz", _packed(manifest, files, effort)
