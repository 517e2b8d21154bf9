"""What accompanies the artefacts: checksums, the bill of materials, provenance, manifests, and the release workflow."""
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import tomllib

from . import binaries, contents, deb, indexes, npm, oci, release, wheel
from .binaries import Binary, has_symbols
from .checks import need, run
from .contents import Contents
from .facts import NAME, PLATFORMS, REPOSITORY, ROOT, VERSION, Platform



def check_checksums(bench):
    output = run(["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=bench.folder / "artefacts")
    assert len(output.splitlines()) == len(bench.artefacts) - 1, "every artefact but the list itself is in the list"


def check_the_same_binary_gives_the_same_artefacts(bench):
    # A small program in place of the binary: what is packaged does not change how.
    binary = Binary(b"#!/bin/sh\n" * 1000, bench.platform, True)
    beside = Contents({"kubegc.1": b".TH kubegc 1\n"}, {"bash": b"b", "zsh": b"z", "fish": b"f"}, b"licence")

    def made():
        name, chart = oci.chart_archive()
        return [deb.package(binary, beside), wheel.wheel(binary, beside), npm.main_package(beside),
                npm.platform_package(binary, beside), oci.image([binary], "kubegc:1"), (name, chart), oci.chart(chart)]

    assert made() == made()


def check_a_program_for_windows_is_packaged(_bench):
    # The header of a program, which says where the next one is, and for which processor it is.
    header = b"MZ".ljust(0x3C, b"\0") + (0x40).to_bytes(4, "little")
    binary = binaries.of(header + b"PE\0\0" + (0x8664).to_bytes(2, "little"))
    assert binary.platform == Platform("windows", "amd64")
    name, archive = contents.tarball(binary, Contents({}, {}, b"licence"))
    assert (name, _names(archive)) == (f"{NAME}-{VERSION}-windows-amd64.tar.gz", {"kubegc.exe", "LICENSE", "README.md"})
    name, archive = indexes.envtest_archive(binary)
    assert name.endswith("-windows-amd64.tar.gz") and _names(archive) == {"kube-apiserver.exe", "etcd.exe", "kubectl.exe"}


def _names(archive):
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        return {entry.name.rpartition("/")[2] for entry in files if entry.isreg()}


def check_symbols_are_left_out(bench):
    assert not has_symbols(bench.binary.contents)
    # Cargo strips a program as its package says, which does not inherit this from its profile; `dist` inherits the packages of `release`.
    profiles = tomllib.loads((ROOT / "Cargo.toml").read_text())["profile"]
    assert profiles["dist"]["inherits"] == "release"
    assert profiles["release"]["package"]["kubegc"]["strip"] == "symbols", profiles["release"]["package"]["kubegc"]


def check_bill_of_materials(bench):
    bill = json.loads(bench.path(f"{bench.platform.name}.cdx.json").read_bytes())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    crates = {one["name"]: one["version"] for one in bill["components"] if one["purl"].startswith("pkg:cargo/")}
    # What is certainly linked, what only tests and build scripts need, and a procedural macro.
    assert {"gc-ownership", "tokio", "rustls", "redb", "ring"} <= set(crates), sorted(crates)
    assert not {"tempfile", "insta", "kube-runtime", "serde_derive", "cc"} & set(crates), sorted(crates)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    assert set(crates.items()) <= {(one["name"], one["version"]) for one in lock}
    page = {one["name"] for one in bill["components"] if one["purl"].startswith("pkg:npm/")}
    assert {"preact", "@dagrejs/dagre"} <= page, page
    unlicensed = [one["name"] for one in bill["components"] if not one["licenses"]]
    assert unlicensed == [], unlicensed
    references = {one["bom-ref"] for one in bill["components"]} | {bill["metadata"]["component"]["bom-ref"]}
    assert {one["ref"] for one in bill["dependencies"]} == references
    assert {to for one in bill["dependencies"] for to in one["dependsOn"]} <= references
    assert bill["components"] and all(one["hashes"][0]["alg"] == "SHA-256" for one in bill["components"]
                                      if one["purl"].startswith("pkg:cargo/") and not one["name"].startswith("gc-"))


def check_provenance(bench):
    statement = json.loads(bench.path(".intoto.json").read_bytes())
    named = {one["name"]: one["digest"]["sha256"] for one in statement["subject"]}
    others = set(bench.artefacts) - {"SHA256SUMS", bench.path(".intoto.json").name}
    assert named == {name: hashlib.sha256(bench.artefacts[name]).hexdigest() for name in others}
    definition = statement["predicate"]["buildDefinition"]
    commit = run(["git", "rev-parse", "HEAD"], cwd=ROOT).strip()
    assert definition["resolvedDependencies"][0] == {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": commit}}
    assert statement["predicate"]["runDetails"]["builder"]["id"].startswith("https://")


def _tarballs():
    return {platform: (f"{NAME}-{VERSION}-{platform.name}.tar.gz", platform.name.encode()) for platform in PLATFORMS}


def check_manifests_name_every_archive(_bench):
    tarballs = _tarballs()
    [_, krew], [_, formula] = indexes.krew(tarballs), indexes.homebrew(tarballs)
    for platform, (name, contents) in tarballs.items():
        url, digest = indexes.url(name), hashlib.sha256(contents).hexdigest()
        assert f"    uri: {url}\n    sha256: {digest}\n".encode() in krew, krew.decode()
        # Homebrew is for macOS and Linux.
        assert (f'      url "{url}"\n      sha256 "{digest}"\n'.encode() in formula) == (platform.system != "windows"), formula.decode()
        assert f"    bin: {platform.program}\n".encode() in krew
        assert f"        os: {platform.system}\n        arch: {platform.machine}\n".encode() in krew


def check_manifest_of_krew_is_yaml(bench):
    from .checks_install import PYTHON

    if not PYTHON.exists():
        need("an environment for Python (scripts/setup)")
    program = "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1]))))"
    manifest = json.loads(run([PYTHON, "-c", program, bench.path("gc.yaml")]))
    assert (manifest["kind"], manifest["metadata"]["name"], manifest["spec"]["version"]) == ("Plugin", "gc", f"v{VERSION}")
    [platform] = manifest["spec"]["platforms"]
    assert platform["selector"]["matchLabels"] == {"os": bench.platform.system, "arch": bench.platform.machine}
    index = json.loads(run([PYTHON, "-c", program, bench.path("envtest-releases.yaml")]))
    [(version, found)] = index["releases"].items()
    [(name, archive)] = found.items()
    assert name == f"envtest-{version}-{bench.platform.name}.tar.gz"
    assert archive == {"hash": hashlib.sha512(bench.artefacts[name]).hexdigest(), "selfLink": indexes.url(name)}


def check_cargo_binstall_finds_the_archives(_bench):
    metadata = json.loads(run(["cargo", "metadata", "--offline", "--locked", "--no-deps", "--format-version=1"], cwd=ROOT))
    [package] = [one for one in metadata["packages"] if one["name"] == NAME]
    told = package["metadata"]["binstall"]
    for platform, (name, _) in _tarballs().items():
        by_target = {**told, **told["overrides"][platform.rust_target]}
        words = {"repo": package["repository"], "name": NAME, "version": VERSION, "bin": NAME, "binary-ext": platform.extension,
                 "target": platform.rust_target}

        def filled(template):
            return re.sub(r"\{ *([a-z-]+) *\}", lambda match: words[match[1]], template)

        assert filled(by_target["pkg-url"]) == indexes.url(name)
        assert filled(by_target["bin-dir"]) == f"{NAME}-{VERSION}-{platform.name}/{platform.program}"
        assert by_target["pkg-fmt"] == "tgz"


def _layout(archive):
    """The files of an OCI layout, every blob checked against its digest."""
    with tarfile.open(fileobj=io.BytesIO(archive)) as layout:
        files = {entry.name: layout.extractfile(entry).read() for entry in layout if entry.isreg()}
    for name, contents in files.items():
        if name.startswith("blobs/"):
            assert name == f"blobs/sha256/{hashlib.sha256(contents).hexdigest()}"
    return files


def check_chart_as_an_oci_archive(bench):
    files = _layout(bench.path("-chart.oci.tar").read_bytes())
    [top] = json.loads(files["index.json"])["manifests"]
    assert top["annotations"] == {"org.opencontainers.image.ref.name": VERSION}
    blob = lambda descriptor: files["blobs/" + descriptor["digest"].replace(":", "/")]  # noqa: E731
    manifest = json.loads(blob(top))
    assert manifest["config"]["mediaType"] == "application/vnd.cncf.helm.config.v1+json"
    [layer] = manifest["layers"]
    assert layer["mediaType"] == "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
    assert blob(layer) == bench.artefacts[f"{NAME}-{VERSION}.tgz"]
    assert json.loads(blob(manifest["config"]))["name"] == NAME
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress(blob(layer)))) as chart:
        packed = {entry.name.removeprefix(f"{NAME}/"): chart.extractfile(entry).read() for entry in chart}
    source = {str(path.relative_to(oci.CHART)): path.read_bytes() for path in oci.CHART.rglob("*") if path.is_file()}
    assert packed == source and next(iter(packed)) == "Chart.yaml"


def check_image_of_several_processors(_bench):
    two = [Binary(machine.encode(), Platform("linux", machine), True) for machine in ("arm64", "amd64")]
    files = _layout(oci.image(two, release.IMAGE)[0])
    [top] = json.loads(files["index.json"])["manifests"]
    index = json.loads(files["blobs/" + top["digest"].replace(":", "/")])
    assert [one["platform"]["architecture"] for one in index["manifests"]] == ["amd64", "arm64"]


def check_versions_agree(_bench):
    run([ROOT / "scripts" / "version", "--check"])


def check_workflows_are_pinned_and_ask_for_little(_bench):
    workflows = sorted((ROOT / ".github" / "workflows").glob("*.yml")) + [ROOT / "action.yml"]
    assert len(workflows) >= 2
    for path in workflows:
        text = path.read_text()
        for line in re.findall(r"uses: *(.*)", text):
            assert re.fullmatch(r"[\w./-]+@[0-9a-f]{40} # v\d+(\.\d+)*", line), f"{path.name}: not pinned by digest: {line}"
        if path.name == "action.yml":
            continue
        assert re.search(r"^permissions: \{\}$", text, re.M), f"{path.name}: permissions are given to each job"
        jobs = re.split(r"^  (?=[a-z][\w-]*:$)", text.partition("\njobs:\n")[2], flags=re.M)[1:]
        for job in jobs:
            name = job.partition(":")[0]
            assert re.search(r"^    permissions:", job, re.M), f"{path.name}: {name} says no permissions"
            assert re.search(r"^    timeout-minutes:", job, re.M), f"{path.name}: {name} has no bound of time"
            # What comes from outside is no part of a script.
            for script in re.findall(r"run: *\|?\n?((?: {10,}.*\n)+|.*\n)", job):
                assert "${{ github." not in script and "${{ inputs." not in script, f"{path.name}: {name}: {script}"


def check_scripts_of_the_package_are_shell(_bench):
    for script in ("postinst", "prerm"):
        run(["sh", "-n", deb.SCRIPTS / script])
    assert subprocess.run(["sh", deb.SCRIPTS / "postinst", "configure"]).returncode == 0
