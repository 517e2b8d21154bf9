"""What package managers read to find the archives: krew's manifest, Homebrew's formula, and setup-envtest's index."""
import hashlib
import textwrap

from . import archives
from .archives import EXECUTABLE, File
from .facts import DESCRIPTION, DOWNLOADS, LICENSE, NAME, REPOSITORY, ROOT, SUMMARY, VERSION
from .provenance import sha256

#: The version of Kubernetes that the embedded server is; as `kube-apiserver --version` says.
KUBERNETES = "1.36.2"
#: The stand-in for etcd: a script, so that the archive holds the program once.
ETCD = (ROOT / "crates/kubegc/src/commands/envtest/etcd.sh").read_bytes()
#: Frameworks download again what lacks a kubectl; most tests never call it.
NO_KUBECTL = b"""#!/bin/sh
echo "kubectl is not part of kubegc: put the real one on PATH in place of $0" >&2
exit 1
"""


def url(name):
    """Where an artefact of this version is downloaded."""
    return f"{DOWNLOADS}/v{VERSION}/{name}"


def krew(tarballs):
    """The manifest of kubectl's plugin `gc`, over {platform: (file name, bytes)}."""
    platforms = "".join(f"""\
  - selector:
      matchLabels:
        os: {platform.system}
        arch: {platform.machine}
    uri: {url(name)}
    sha256: {sha256(contents)}
    bin: {platform.program}
    files:
      - from: "*/{platform.program}"
        to: .
      - from: "*/LICENSE"
        to: .
""" for platform, (name, contents) in sorted(tarballs.items()))
    text = f"""\
apiVersion: krew.googlecontainertools.github.com/v1alpha2
kind: Plugin
metadata:
  name: gc
spec:
  version: v{VERSION}
  homepage: {REPOSITORY}
  shortDescription: Explain and preview garbage collection
  description: |
{textwrap.indent(textwrap.fill(DESCRIPTION, 76), "    ")}
    kubectl gc why POD          why an object is, will be or is not deleted
    kubectl gc stuck            stuck deletions, and what they wait for
    kubectl gc plan delete …    what a deletion would lead to
  platforms:
{platforms}"""
    return "gc.yaml", text.encode()


def homebrew(tarballs):
    """The formula, over {platform: (file name, bytes)}."""
    def system(word, name):
        rows = [(platform, *tarballs[platform]) for platform in sorted(tarballs) if platform.system == name]
        if not rows:
            return ""
        processors = "".join(f"""\
    on_{ {"amd64": "intel", "arm64": "arm"}[platform.machine] } do
      url "{url(file)}"
      sha256 "{sha256(contents)}"
    end
""" for platform, file, contents in rows)
        return f"  on_{word} do\n{processors}  end\n\n"

    text = f"""\
class Kubegc < Formula
  desc "{SUMMARY}"
  homepage "{REPOSITORY}"
  version "{VERSION}"
  license "{LICENSE}"

{system("macos", "darwin")}{system("linux", "linux")}  def install
    bin.install "{NAME}"
    bin.install_symlink "{NAME}" => "kubectl-gc"
    bin.install_symlink "{NAME}" => "kubectl_complete-gc"
    man1.install Dir["man/*.1"]
    bash_completion.install "completions/{NAME}.bash" => "{NAME}"
    zsh_completion.install "completions/{NAME}.zsh" => "_{NAME}"
    fish_completion.install "completions/{NAME}.fish"
  end

  test do
    assert_match "Everything ended as it should.", shell_output("#{{bin}}/{NAME} demo")
  end
end
"""
    return f"{NAME}.rb", text.encode()


def envtest_archive(binary, effort=archives.THOROUGH):
    """The archive that setup-envtest unpacks: regular files alone, because it skips links."""
    ending = binary.platform.extension
    # Windows runs no scripts of a shell.
    contents = {"kube-apiserver": binary.contents, "etcd": binary.contents if ending else ETCD, "kubectl": NO_KUBECTL}
    files = [File(f"controller-tools/envtest/{name}{ending}", program, EXECUTABLE) for name, program in contents.items()]
    name = f"envtest-v{KUBERNETES}-{binary.platform.name}.tar.gz"
    return name, archives.gz(archives.tar(files, 0), effort)


def envtest_index(found):
    """The index of `setup-envtest --index`, over {file name: bytes}."""
    rows = "".join(f"    {name}:\n      hash: {hashlib.sha512(contents).hexdigest()}\n      selfLink: {url(name)}\n"
                   for name, contents in sorted(found.items()))
    return "envtest-releases.yaml", f"releases:\n  v{KUBERNETES}:\n{rows}".encode()
