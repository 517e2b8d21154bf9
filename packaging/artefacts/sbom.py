"""The bill of materials, in CycloneDX: what is linked into the binary, from cargo's own resolution and the page's lock file."""
import json
import subprocess
import tomllib
import uuid
from datetime import datetime, timezone

from .facts import LICENSE, NAME, REPOSITORY, ROOT, VERSION, DistError, source_date

SPEC = "1.6"
REGISTRY = "registry+https://github.com/rust-lang/crates.io-index"


def _cargo(*arguments):
    done = subprocess.run(["cargo", *arguments, "--locked", "--offline"], cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        raise DistError(f"cargo {' '.join(arguments)}: {done.stderr.strip()}; run scripts/setup, which downloads what it needs")
    return done.stdout


def tree(target):
    """{(name, version)} of what the binary links: procedural macros and what build scripts need are not part of it."""
    lines = _cargo("tree", f"--package={NAME}", "--edges=normal,no-proc-macro", "--prefix=none", f"--target={target}", "--format={p}")
    return {tuple(line.replace(" v", " ", 1).split()[:2]) for line in lines.splitlines() if line.strip()}


def _linked(target):
    """The packages of the tree by id, and which of them each needs."""
    metadata = json.loads(_cargo("metadata", "--format-version=1", f"--filter-platform={target}"))
    in_tree = tree(target)
    packages = {one["id"]: one for one in metadata["packages"] if (one["name"], one["version"]) in in_tree}
    needs = {node["id"]: sorted(one["pkg"] for one in node["deps"]
                                if one["pkg"] in packages and any(kind["kind"] is None for kind in one["dep_kinds"]))
             for node in metadata["resolve"]["nodes"] if node["id"] in packages}
    return packages, needs


def _crate_url(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def _license(expression):
    # Old crates write a slash for OR.
    return [{"expression": expression.replace("/", " OR ")}] if expression else []


def _crates(target):
    packages, linked = _linked(target)
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())["package"]
    checksums = {(one["name"], one["version"]): one["checksum"] for one in lock if "checksum" in one}
    components = []
    for key in linked:
        package = packages[key]
        component = {
            "type": "library", "bom-ref": _crate_url(package), "name": package["name"], "version": package["version"],
            "purl": _crate_url(package), "licenses": _license(package["license"]),
        }
        checksum = checksums.get((package["name"], package["version"]))
        if checksum:
            component["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        elif package["source"] == REGISTRY:
            raise DistError(f"Cargo.lock has no checksum of {package['name']} {package['version']}")
        if package["name"] != NAME:
            components.append(component)
    dependencies = [{"ref": _crate_url(packages[key]), "dependsOn": [_crate_url(packages[one]) for one in normal]}
                    for key, normal in linked.items()]
    return components, dependencies


def _page():
    """What is bundled into the page, which the binary embeds."""
    lock = json.loads((ROOT / "ui" / "package-lock.json").read_text())["packages"]
    components = []
    for path, package in lock.items():
        if not path or package.get("dev") or package.get("devOptional"):
            continue
        name = path.rpartition("node_modules/")[2]
        url = f"pkg:npm/{name.replace('@', '%40', 1)}@{package['version']}"
        components.append({
            "type": "library", "bom-ref": url, "name": name, "version": package["version"], "purl": url,
            "licenses": _license(package.get("license")),
        })
    return components


def bill(platform):
    """The bill of the binary for one platform: its file name and bytes."""
    crates, dependencies = _crates(platform.rust_target)
    page = _page()
    root = f"pkg:cargo/{NAME}@{VERSION}"
    for dependency in dependencies:
        if dependency["ref"] == root:
            dependency["dependsOn"] = sorted(dependency["dependsOn"] + [one["bom-ref"] for one in page])
    dependencies += [{"ref": one["bom-ref"], "dependsOn": []} for one in page]
    document = {
        "bomFormat": "CycloneDX", "specVersion": SPEC, "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(source_date(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "component": {
                "type": "application", "bom-ref": root, "name": NAME, "version": VERSION, "purl": root,
                "licenses": _license(LICENSE),
                "externalReferences": [{"type": "vcs", "url": REPOSITORY}],
                "properties": [{"name": "kubegc:target", "value": platform.rust_target}],
            },
            "tools": {"components": [{"type": "application", "name": "scripts/dist", "version": VERSION}]},
        },
        "components": sorted(crates + page, key=lambda one: one["bom-ref"]),
        "dependencies": sorted(dependencies, key=lambda one: one["ref"]),
    }
    serial = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    document["serialNumber"] = f"urn:uuid:{serial}"
    return f"{NAME}-{VERSION}-{platform.name}.cdx.json", json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
