"""OCI layouts in a tar archive, made without a container daemon: the image of the binary, and the Helm chart."""
import hashlib
import json

from . import archives
from .archives import EXECUTABLE, FOLDER, File
from .facts import AUTHORS, DESCRIPTION, LICENSE, NAME, REPOSITORY, ROOT, SUMMARY, VERSION, DistError, source_date

#: The account in the image, without privileges.
USER = 65532
ACCOUNTS = {
    "etc/passwd": f"nonroot:x:{USER}:{USER}:nonroot:/:/sbin/nologin\n",
    "etc/group": f"nonroot:x:{USER}:\n",
}
MANIFEST = "application/vnd.oci.image.manifest.v1+json"
INDEX = "application/vnd.oci.image.index.v1+json"
#: Of every entry, so that the same binary gives the same image whenever it is made.
DATE = 0
CHART = ROOT / "deploy" / "helm" / NAME


class Layout:
    """An image layout that is being put together."""

    def __init__(self):
        self.blobs = {}
        self.manifests = []

    def blob(self, media_type, contents):
        """Adds a blob, and returns its descriptor."""
        digest = hashlib.sha256(contents).hexdigest()
        self.blobs[f"blobs/sha256/{digest}"] = contents
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(contents)}

    def document(self, media_type, value):
        """Adds a JSON document as a blob."""
        return self.blob(media_type, json.dumps(value, sort_keys=True, separators=(",", ":")).encode())

    def archive(self):
        """The layout as a tar archive."""
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": self.manifests}
        files = [
            File("oci-layout", b'{"imageLayoutVersion":"1.0.0"}'),
            File("index.json", json.dumps(index, sort_keys=True).encode()),
            File("blobs", None, FOLDER),
            File("blobs/sha256", None, FOLDER),
            *(File(name, contents) for name, contents in sorted(self.blobs.items())),
        ]
        return archives.tar(files, DATE)


def annotations():
    """What registries show."""
    prefix = "org.opencontainers.image"
    return {
        f"{prefix}.title": NAME,
        f"{prefix}.description": SUMMARY,
        f"{prefix}.licenses": LICENSE,
        f"{prefix}.source": REPOSITORY,
        f"{prefix}.version": VERSION,
        f"{prefix}.authors": AUTHORS,
    }


def _add_image(layout, binary, effort, libraries):
    files = [File(NAME, binary.contents, EXECUTABLE), File("etc", None, FOLDER)]
    files += [File(name, text.encode()) for name, text in ACCOUNTS.items()]
    # Of the journal and for whoever wants to write: volumes are mounted over it.
    files.append(File("tmp", None, 0o1777))
    files += archives.folders_of(libraries)
    layer = archives.tar(files, DATE)
    packed = layout.blob("application/vnd.oci.image.layer.v1.tar+gzip", archives.gz(layer, effort))
    platform = {"architecture": binary.platform.machine, "os": binary.platform.system}
    config = layout.document("application/vnd.oci.image.config.v1+json", {
        **platform,
        "created": "1970-01-01T00:00:00Z",
        "config": {"User": f"{USER}:{USER}", "Entrypoint": [f"/{NAME}"], "WorkingDir": "/", "Labels": annotations()},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(layer).hexdigest()]},
        "history": [{"created": "1970-01-01T00:00:00Z", "created_by": "scripts/dist"}],
    })
    manifest = layout.document(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [packed], "annotations": annotations(),
    })
    return {**manifest, "platform": platform}


def image(binaries, name, effort=archives.THOROUGH, libraries=()):
    """An image from scratch of one static binary for each platform, under a name with a tag.

    In an image from scratch there is no dynamic linker; `libraries` are the files that tests of other binaries add.
    """
    for binary in binaries:
        if binary.platform.system != "linux":
            raise DistError(f"an image cannot hold a binary for {binary.platform.system}")
        if not binary.static and not libraries:
            raise DistError("the binary is not static: it asks for a dynamic linker")
    layout = Layout()
    manifests = [_add_image(layout, binary, effort, libraries) for binary in sorted(binaries, key=lambda one: one.platform)]
    if len(manifests) > 1:
        top = layout.document(INDEX, {"schemaVersion": 2, "mediaType": INDEX, "manifests": manifests})
    else:
        [top] = manifests
    # What has no registry in its name is Docker Hub's: that is how every runtime completes it.
    full = name if "/" in name else f"docker.io/library/{name}"
    top["annotations"] = {
        "io.containerd.image.name": full,
        "org.opencontainers.image.ref.name": name.rpartition(":")[2],
    }
    layout.manifests.append(top)
    return layout.archive(), full, top["digest"]


def chart_facts():
    """Chart.yaml, which is one value in a line; lists and maps are JSON, which is YAML as well."""
    facts = {}
    for line in (CHART / "Chart.yaml").read_text().splitlines():
        key, separator, value = line.partition(": ")
        if not separator or line.startswith((" ", "#")):
            raise DistError(f"{CHART}/Chart.yaml: expected `key: value` in each line, found {line!r}")
        facts[key] = json.loads(value) if value.startswith(("[", "{")) else value.strip('"')
    if (facts["version"], facts["appVersion"]) != (VERSION, VERSION):
        raise DistError(f"{CHART}/Chart.yaml is of version {facts['version']}, the workspace of {VERSION}: run scripts/version {VERSION}")
    return facts


def chart_archive(effort=archives.THOROUGH):
    """The chart as `helm package` names it and lays it out."""
    files = [File(f"{NAME}/{path.relative_to(CHART)}", path.read_bytes())
             for path in sorted(CHART.rglob("*")) if path.is_file()]
    # Helm reads Chart.yaml first.
    files.sort(key=lambda file: (file.name != f"{NAME}/Chart.yaml", file.name))
    return f"{NAME}-{chart_facts()['version']}.tgz", archives.gz(archives.tar(files, source_date()), effort)


def chart(contents):
    """The packed chart as an OCI layout: what `helm push` makes of it."""
    facts = chart_facts()
    layout = Layout()
    described = {**annotations(), "org.opencontainers.image.title": facts["name"],
                 "org.opencontainers.image.description": facts["description"]}
    config = layout.document("application/vnd.cncf.helm.config.v1+json", facts)
    layer = layout.blob("application/vnd.cncf.helm.chart.content.v1.tar+gzip", contents)
    manifest = layout.document(MANIFEST, {
        "schemaVersion": 2, "mediaType": MANIFEST, "config": config, "layers": [layer], "annotations": described,
    })
    layout.manifests.append({**manifest, "annotations": {"org.opencontainers.image.ref.name": facts["version"]}})
    return layout.archive()


