"""scripts/kubernetes-version on small sources: the same bytes each time, and a line for each thing that is not data.

    kubernetes_version.py SCRIPT FOLDER
"""
import json, pathlib, shutil, subprocess, sys, zipfile

SCRIPT, FOLDER = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
ROOT, SOURCE = FOLDER / "root", FOLDER / "source"
SCHEMA = ROOT / "crates/gc-registry/src/schema"
CATALOG = ROOT / "crates/gc-registry/src/catalog"
FILES = [SCHEMA / "facts-1.37.txt", SCHEMA / "descriptions-1.37.jsonl", CATALOG / "builtin_resources-1.37.txt",
         ROOT / "crates/gc-registry/src/openapi/registered-1.37.txt", ROOT / "crates/gc-apiserver/src/encode/protobuf_fields-1.37.txt",
         SCHEMA / "rules-1.37.txt"]

META = "".join(f"type {name} struct {{\n\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`\n}}\n\n" for name in (
    "ObjectMeta", "ListMeta", "DeleteOptions", "WatchEvent", "Status", "APIGroup", "APIGroupList", "APIResourceList",
    "APIVersions", "Patch", "Condition")) + "type TypeMeta struct {\n}\n"
HEAD = "package v1\n\nimport (\n\tmetav1 \"k8s.io/apimachinery/pkg/apis/meta/v1\"\n)\n\n"
DISCOVERY = "package v2\n\ntype APIGroupDiscoveryList struct {\n\tName string `json:\"name\" protobuf:\"bytes,1,opt,name=name\"`\n}\n"
GATES = """var gates = map[featuregate.Feature]featuregate.VersionedSpecs{
\tLoud: {
\t\t{Version: version.MustParse("1.36"), Default: false, PreRelease: featuregate.Alpha},
\t\t{Version: version.MustParse("1.37"), Default: true, PreRelease: featuregate.Beta},
\t},

\tSame: {
\t\t{Version: version.MustParse("1.30"), Default: true, PreRelease: featuregate.GA},
\t},
}
"""
POD = HEAD + """type Pod struct {
\tmetav1.TypeMeta `json:",inline"`
\tmetav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
\tSpec PodSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
}

type PodSpec struct {
\tNode string `json:"node" protobuf:"bytes,1,opt,name=node"`
}
"""
NEW = POD.replace("type PodSpec struct {\n", """type PodSpec struct {
\t// +optional
\t// +featureGate=Alpha
\tNew *int32 `json:"new,omitempty" protobuf:"varint,2,opt,name=new"`
\t// +optional
\t// +k8s:maxLength=5
\tPlain string `json:"plain,omitempty" protobuf:"bytes,3,opt,name=plain"`
""").replace("\tNode string", "\t// +k8s:maxLength=9\n\t// +k8s:beta(since: \"1.37\")=+k8s:required\n\t// +k8s:alpha(since: \"1.37\")=+k8s:minLength=2\n\tNode string")


def git(repository, *arguments):
    subprocess.run(["git", "-C", repository, "-c", "user.name=a", "-c", "user.email=a@example.com", *arguments], check=True, capture_output=True)


def commit(repository, tag, files):
    for name, text in files.items():
        path = repository / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    git(repository, "add", "-A")
    git(repository, "commit", "--quiet", "--allow-empty", "-m", tag)
    git(repository, "tag", tag)


def object_schema(required=(), **fields):
    return {"description": "An object.", "type": "object", "required": list(required), "properties": fields}


def text(**more):
    return {"description": "A text.", "type": "string", **more}


def schemas(**spec):
    pod = object_schema(metadata={"description": "Whose it is."}, spec={"$ref": "#/$defs/io.k8s.api.core.v1.PodSpec", "description": "What it is."})
    options = {**object_schema(["name"], name=text()), "x-kubernetes-group-version-kind": [{"group": "apps", "version": "v1"}]}
    return {"io.k8s.api.core.v1.Pod": pod, "io.k8s.api.core.v1.PodSpec": object_schema(["node"], node=text(), **spec),
            "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions": options}


def wheel(name, files):
    with zipfile.ZipFile(SOURCE / name, "w") as archive:
        for path, content in files.items():
            archive.writestr(path, content)


def operation(function, method, path, answer):
    return f"""    def {function}_with_http_info(self):
        _param = self._{function}_serialize()
        _response_types_map = {{
            '200': "{answer}",
        }}

    def _{function}_serialize(self):
        return self.api_client.param_serialize(
            method='{method}',
            resource_path='{path}',
        )

"""


def client(*operations):
    return {"kubernetes/client/api/core_v1_api.py": "".join(operation(*one) for one in operations)}


def prepare():
    for name in ("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator", "apiserver"):
        (SOURCE / name).mkdir(parents=True)
        git(SOURCE / name, "init", "--quiet")
    info = "package version\n\ntype Info struct {\n\tMajor string `json:\"major\"`\n}\n"
    machinery = {"pkg/apis/meta/v1/types.go": "package v1\n\n" + META, "pkg/version/types.go": info}
    for tag, types in (("v1", POD), ("v2", NEW)):
        commit(SOURCE / "api", tag, {"core/v1/types.go": types, "apidiscovery/v2/types.go": DISCOVERY})
        commit(SOURCE / "apimachinery", tag, machinery)
        commit(SOURCE / "apiextensions-apiserver", tag, {"a": tag})
        commit(SOURCE / "kube-aggregator", tag, {"a": tag})
        commit(SOURCE / "apiserver", tag, {"pkg/features/kube_features.go": GATES})
    pods = "/api/v1/namespaces/{namespace}/pods"
    read = ("read_pod", "GET", pods + "/{name}", "V1Pod")
    one = schemas()
    two = schemas(new=text(type="integer"), plain=text(), later={"description": "Later.", "type": "array", "items": {"type": "string"}})
    two["io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"]["x-kubernetes-group-version-kind"].append({"group": "batch", "version": "v2"})
    for version, definitions, operations in (
        ("1.36", one, [read]),
        ("1.37", two, [read, ("read_pod_log", "GET", pods + "/{name}/log", "str"), ("list_thing", "GET", "/apis/new.k8s.io/v1/things", "V1ThingList"),
                       ("read_thing", "GET", "/apis/new.k8s.io/v1/things/{name}", "V1Thing")]),
    ):
        name = f"kubernetes_validate/kubernetes-json-schema/v{version}.0-local/_definitions.json"
        wheel(f"kubernetes_validate-{version}.0-py3-none-any.whl", {name: json.dumps({"$defs": definitions})})
        wheel(f"kubernetes-{version[2:]}.0.0-py2.py3-none-any.whl", client(*operations))
    pins = {}
    for version, tag in (("1.36", "v1"), ("1.37", "v2")):
        types = dict.fromkeys(("api", "apimachinery", "apiextensions-apiserver", "kube-aggregator", "apiserver"), tag)
        pins[version] = {"types": types, "schemas": f"{version}.0", "client": f"{version[2:]}.0.0", "gates off": ["Alpha"], "off": {}}
    for folder in {path.parent for path in FILES} | {ROOT / "scripts"}:
        folder.mkdir(parents=True)
    (ROOT / "scripts/kubernetes-sources.json").write_text(json.dumps(pins))
    (SCHEMA / "kinds.rs").write_text('    ("", "v1", "Pod"),\n')
    (SCHEMA / "descriptions.jsonl").write_text("")
    (CATALOG / "builtin_resources.txt").write_text("[core/v1]\npods Pod pod N po - get - -\n")


def run(*arguments):
    return subprocess.run([SCRIPT, *arguments, "--source", SOURCE, "--root", ROOT], capture_output=True, text=True)


def written(version):
    done = run(version)
    assert done.returncode == 0, done.stderr
    return done.stdout


prepare()
opened = written("1.36")
assert opened == "", opened
facts = (SCHEMA / "facts.txt").read_text()
assert "\napi.core.v1.PodSpec\n node s r\n" in facts, facts
lines = written("1.37")
first = [path.read_bytes() for path in FILES]
assert written("1.37") == lines and [path.read_bytes() for path in FILES] == first, "two runs differ"
assert run("1.37", "--check").returncode == 0

assert FILES[0].read_text() == "api.core.v1.PodSpec\n new i * o off\n plain s o\n node s r\n later [s o\n", FILES[0].read_text()
assert json.loads(FILES[1].read_text()) == ["io.k8s.api.core.v1.PodSpec", {"later": "Later.", "new": "A text.", "plain": "A text."}]
assert FILES[2].read_text().endswith("[new.k8s.io/v1]\nthings Thing thing C - - get,list,watch - -\n"), FILES[2].read_text()
assert FILES[3].read_text() == "+batch/v2\n"
assert FILES[4].read_text() == "core/v1.PodSpec 2:new:i 3:plain:s? 1:node:s\n", FILES[4].read_text()
assert FILES[5].read_text() == "api.core.v1.PodSpec\n node required\n", FILES[5].read_text()
for expected in ("schema-only  api.core.v1.PodSpec.later", "subresource  core/v1 pods/log", "kind         new.k8s.io/v1 things", "off          api.core.v1.PodSpec.new",
                 "gate         Loud of the API server: off alpha became on beta", "field        api.core.v1.PodSpec.plain", "validation   api.core.v1.PodSpec.node: none became k8s:maxLength=9", "columns      "):
    assert f"\n{expected}" in "\n" + lines, f"{expected} is missing in\n{lines}"

# Whatever is written by hand beside the data stays.
FILES[2].write_text(FILES[2].read_text().replace("things Thing thing C - - get,list,watch -", "things Thing thing C th all get,list,watch conditional"))
assert run("1.37", "--check").returncode == 0
# A table that somebody has changed is seen, and not written by a check.
FILES[0].write_text(FILES[0].read_text() + "api.core.v1.Made\n")
checked = run("1.37", "--check")
assert checked.returncode == 1 and "not current: crates/gc-registry/src/schema/facts-1.37.txt" in checked.stderr, checked.stderr
assert FILES[0].read_text().endswith("Made\n")
unknown = run("1.38")
assert unknown.returncode == 1 and "1.38 has no entry in scripts/kubernetes-sources.json" in unknown.stderr, unknown.stderr
shutil.rmtree(FOLDER)
