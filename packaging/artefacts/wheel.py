"""A wheel for PyPI: the binary as a script, and the module with the pytest plugin."""
import base64
import hashlib

from . import archives
from .archives import EXECUTABLE, File
from .facts import AUTHORS, LICENSE, NAME, PYTHON_VERSION, REPOSITORY, ROOT, SUMMARY, source_date

SOURCES = ROOT / "packaging" / "python"
#: A static binary runs beside any C library and any kernel that Rust supports.
STATIC_TAGS = "manylinux_2_17_{machine}.manylinux2014_{machine}.musllinux_1_1_{machine}"
MAC_TAGS = {"amd64": "macosx_10_12_x86_64", "arm64": "macosx_11_0_arm64"}


def _platform_tag(binary):
    if binary.platform.system == "darwin":
        return MAC_TAGS[binary.platform.machine]
    machine = {"amd64": "x86_64", "arm64": "aarch64"}[binary.platform.machine]
    # What is linked with the C library of the machine that built it is for that machine.
    return STATIC_TAGS.format(machine=machine) if binary.static else f"linux_{machine}"


def wheel(binary, contents, effort=archives.THOROUGH):
    """The wheel's name and bytes."""
    tag = _platform_tag(binary)
    info = f"{NAME}-{PYTHON_VERSION}.dist-info"
    metadata = (
        f"Metadata-Version: 2.4\nName: {NAME}\nVersion: {PYTHON_VERSION}\nSummary: {SUMMARY}\n"
        f"Author: {AUTHORS}\nLicense-Expression: {LICENSE}\nLicense-File: LICENSE\n"
        f"Project-URL: Source, {REPOSITORY}\nProject-URL: Changelog, {REPOSITORY}/blob/main/CHANGELOG.md\n"
        "Keywords: kubernetes,garbage-collection,testing,operator,envtest,pytest\n"
        "Classifier: Framework :: Pytest\nClassifier: Environment :: Console\n"
        "Classifier: Topic :: Software Development :: Testing\n"
        "Requires-Python: >=3.9\nProvides-Extra: pytest\nRequires-Dist: pytest>=7; extra == \"pytest\"\n"
        "Requires-Dist: kubernetes>=28; extra == \"pytest\"\n"
        "Description-Content-Type: text/markdown\n\n"
    ) + (SOURCES / "README.md").read_text()
    tags = "".join(f"Tag: py3-none-{one}\n" for one in tag.split("."))
    module = [File(f"{NAME}/{path.name}", path.read_bytes()) for path in sorted((SOURCES / NAME).iterdir()) if path.is_file()]
    files = [
        *module,
        # Installers make what is here executable and put it beside `python`.
        File(f"{NAME}-{PYTHON_VERSION}.data/scripts/{NAME}", binary.contents, EXECUTABLE),
        # And this below the environment, where man and the shells look if it is that of a user or of the machine.
        *(File(f"{NAME}-{PYTHON_VERSION}.data/data/{path}", text) for path, text in contents.shared().items()),
        File(f"{info}/METADATA", metadata.encode()),
        File(f"{info}/WHEEL", f"Wheel-Version: 1.0\nGenerator: scripts/dist\nRoot-Is-Purelib: false\n{tags}".encode()),
        File(f"{info}/entry_points.txt", f"[pytest11]\n{NAME} = {NAME}.pytest_plugin\n".encode()),
        File(f"{info}/licenses/LICENSE", contents.license),
    ]
    record = "".join(f"{file.name},sha256={_digest(file.contents)},{len(file.contents)}\n" for file in files)
    files.append(File(f"{info}/RECORD", f"{record}{info}/RECORD,,\n".encode()))
    return f"{NAME}-{PYTHON_VERSION}-py3-none-{tag}.whl", archives.zipped(files, source_date(), effort)


def _digest(contents):
    return base64.urlsafe_b64encode(hashlib.sha256(contents).digest()).rstrip(b"=").decode()
