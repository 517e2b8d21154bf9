"""Each artefact, installed in an empty root and run from there."""
import json
import os
import pathlib
import shutil
import subprocess
import tarfile
import time

from .checks import DEMO_ENDS, Skipped, demo, need, run
from .facts import NAME, ROOT, VERSION
from .indexes import KUBERNETES

BUSYBOX = pathlib.Path("/bin/busybox")
PYTHON = ROOT / "target" / "python" / "bin" / "python"
TARBALL = f"{NAME}-{VERSION}-{{}}.tar.gz"
#: How long containerd may take to answer.
READY_SECONDS = 30


def unpack(bench, folder):
    """Unpacks the archive of this platform with the modes that it gives its files."""
    # Debian 12's Python is older than filters, and extracts like that without one.
    how = {"filter": "tar"} if hasattr(tarfile, "tar_filter") else {}
    with tarfile.open(bench.path(TARBALL.format(bench.platform.name))) as archive:
        archive.extractall(folder, **how)


def check_tarball_in_an_empty_root(bench):
    need("chroot", root=True)
    root = bench.empty_root("tarball")
    unpack(bench, root)
    top = f"{NAME}-{VERSION}-{bench.platform.name}"
    assert (root / top / "man" / "kubegc-why.1").is_file()
    demo(["chroot", root, f"/{top}/{NAME}"])


def _dpkg(root, *arguments, expect=0):
    # There is no C library's package in an empty root.
    return run(["dpkg", f"--root={root}", "--force-depends", "--force-not-root", "--log=/dev/null", *arguments], expect)


def check_debian_package_in_an_empty_root(bench):
    need("dpkg", "chroot", str(BUSYBOX), root=True)
    root = bench.empty_root("deb")
    for folder in ("var/lib/dpkg/info", "var/lib/dpkg/updates", "bin"):
        (root / folder).mkdir(parents=True, exist_ok=True)
    (root / "var/lib/dpkg/status").touch()
    # Maintainer scripts need a shell, which every Debian has.
    shutil.copy(BUSYBOX, root / "bin" / "sh")
    _dpkg(root, "--install", bench.path(".deb"))
    assert f"Version: {VERSION}-1" in _dpkg(root, "--status", NAME)
    demo(["chroot", root, "/usr/bin/kubegc"])
    assert "kubectl gc" in run(["chroot", root, "/usr/bin/kubectl-gc", "--help"])
    assert _dpkg(root, "--verify", NAME) == "", "a file is not as the package says"
    for unit in ("kubegc-up", "kubegc-run", "kubegc-node"):
        text = (root / f"usr/lib/systemd/system/{unit}.service").read_text()
        assert "ExecStart=/usr/bin/kubegc " in text and "/usr/local" not in text, text
        assert f"EnvironmentFile=-/etc/default/{unit}\n" in text, text
    # A change of an administrator survives an upgrade.
    settings = root / "etc/default/kubegc-up"
    settings.write_text('KUBEGC_UP_OPTIONS="--workloads=off"\n')
    _dpkg(root, "--force-confold", "--install", bench.path(".deb"))
    assert settings.read_text() == 'KUBEGC_UP_OPTIONS="--workloads=off"\n'
    _dpkg(root, "--purge", NAME)
    left = [str(path) for path in root.rglob("*kubegc*") if "dpkg" not in path.parts]
    assert left == [], left


def check_systemd_units(bench):
    need("systemd-analyze")
    folder = bench.new("units")
    for unit in [*(ROOT / "packaging/systemd").iterdir(), ROOT / "deploy/node/kubegc-node.service"]:
        text = unit.read_text().replace("/usr/local/bin/kubegc", str(bench.folder / "kubegc"))
        (folder / unit.name).write_text(text)
        said = run(["systemd-analyze", "verify", "--man=no", folder / unit.name])
        assert unit.name not in said, said


class Containerd:
    """A containerd of the check's own, stopped by its process id."""

    def __init__(self, folder):
        self.socket = folder / "s"
        configuration = f'version = 2\nroot = "{folder}/root"\nstate = "{folder}/state"\n' \
            'disabled_plugins = ["io.containerd.grpc.v1.cri"]\n' \
            f'[grpc]\n  address = "{self.socket}"\n[ttrpc]\n  address = "{self.socket}.ttrpc"\n'
        (folder / "config.toml").write_text(configuration)
        self.log = (folder / "log").open("wb")
        self.process = subprocess.Popen(["containerd", "--config", folder / "config.toml"], stdout=self.log, stderr=self.log)
        end = time.monotonic() + READY_SECONDS
        while subprocess.run(["ctr", "-a", self.socket, "version"], capture_output=True).returncode != 0:
            assert time.monotonic() < end and self.process.poll() is None, (folder / "log").read_text()
            time.sleep(0.05)

    def ctr(self, *arguments):
        return run(["ctr", "-a", self.socket, *arguments])

    def stop(self):
        self.process.terminate()
        self.process.wait(READY_SECONDS)
        self.log.close()


def check_image_in_containerd(bench):
    need("containerd", "ctr", "runc", "mount", root=True)
    folder = bench.new("ctd")
    # Overlays do not lie on overlays.
    run(["mount", "-t", "tmpfs", "-o", "mode=0755", "kubegc-dist", folder])
    containerd = None
    try:
        containerd = Containerd(folder)
        containerd.ctr("images", "import", bench.path("-image.oci.tar"))
        name = f"ghcr.io/{NAME}/{NAME}:{VERSION}"
        assert name in containerd.ctr("images", "ls", "-q").split()
        output = containerd.ctr("run", "--rm", name, "demo", "/kubegc", "demo")
        assert DEMO_ENDS in output, output
    finally:
        if containerd:
            containerd.stop()
        run(["umount", "-l", folder])


def install_wheel(bench, name):
    """The python of a virtual environment with the wheel, made without a network; it sees the test environment's packages."""
    if not PYTHON.exists():
        raise Skipped("an environment for Python (scripts/setup)")
    python = bench.folder / name / "bin" / "python"
    run([PYTHON, "-m", "venv", "--without-pip", bench.folder / name])
    run(_pip(python, "install", "--quiet", "--no-index", "--no-deps", "--no-compile", bench.path(".whl")))
    find = "import sysconfig; print(sysconfig.get_path('purelib'))"
    own, packages = run([python, "-c", find]).strip(), run([PYTHON, "-c", find]).strip()
    pathlib.Path(own, "test-environment.pth").write_text(packages + "\n")
    return python


def _pip(python, *arguments):
    return [PYTHON, "-m", "pip", "--disable-pip-version-check", "--python", python, *arguments]


def environment():
    """The environment, without what leads to another binary or another cluster."""
    return {name: value for name, value in os.environ.items() if name not in ("KUBEGC_BINARY", "KUBECONFIG")}


def check_wheel_in_a_virtual_environment(bench):
    python = install_wheel(bench, "venv")
    program = python.with_name(NAME)
    demo([program])
    demo([python, "-m", NAME])
    share = python.parent.parent / "share"
    for path in ("man/man1/kubegc-why.1", f"bash-completion/completions/{NAME}", f"zsh/site-functions/_{NAME}"):
        assert (share / path).is_file(), path
    assert run([program, "--version"]) == f"{NAME} {VERSION}\n"
    tests = ROOT / "packaging/python/test_plugin.py"
    output = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", tests], env=environment(), cwd=bench.folder)
    assert " passed" in output and "skipped" not in output, output
    run(_pip(python, "uninstall", "--quiet", "--yes", NAME))
    assert not program.exists()


def install_npm(bench, folder):
    """A folder with both packages, installed without a network."""
    need("node", "npm")
    folder.mkdir()
    (folder / "package.json").write_text('{"private": true, "type": "module"}')
    archives = [bench.path(f"-npm-{VERSION}.tgz"), bench.path(f"-{_npm_platform(bench)}-{VERSION}.tgz")]
    # The packages of other platforms are optional, and cannot be had offline.
    run(["npm", "install", "--offline", "--no-audit", "--no-fund", "--ignore-scripts", _npm_cache(bench), *archives], cwd=folder)
    return folder


def _npm_platform(bench):
    return f"{bench.platform.system}-{bench.platform.npm_cpu}"


def _npm_cache(bench):
    return f"--cache={bench.folder}/npm-cache"


def check_packages_in_an_npm_prefix(bench):
    folder = install_npm(bench, bench.folder / "npm")
    demo(["npx", "--offline", _npm_cache(bench), NAME], cwd=folder)
    for path in ("man/kubegc-why.1", f"completions/{NAME}.bash"):
        assert (folder / "node_modules" / NAME / path).is_file(), path
    shutil.copy(ROOT / "packaging/npm/test.mjs", folder)
    run(["node", "--test", "test.mjs"], cwd=folder, env=environment())
    shutil.rmtree(folder / "node_modules" / f"@{NAME}")
    said = run(["node", f"node_modules/{NAME}/cli.js", "demo"], expect=1, cwd=folder, env=environment())
    assert said.startswith(f"error: @{NAME}/{_npm_platform(bench)} is not installed."), said


def check_envtest_archive(bench):
    """What setup-envtest does: check the hash, and write regular files to a folder of their own."""
    folder = bench.new("envtest")
    with tarfile.open(bench.path(f"envtest-v{KUBERNETES}-{bench.platform.name}.tar.gz")) as archive:
        for entry in archive:
            assert entry.isreg(), f"{entry.name}: what is no regular file is skipped"
            path = folder / pathlib.Path(entry.name).name
            path.write_bytes(archive.extractfile(entry).read())
            path.chmod(entry.mode & 0o555)
    assert sorted(path.name for path in folder.iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    assert run([folder / "kube-apiserver", "--version"]).startswith(f"Kubernetes v{KUBERNETES}")
    assert "--listen-client-urls" in run([folder / "etcd", "--help"])
    assert "put the real one on PATH" in run([folder / "kubectl", "version"], expect=1)


def check_plugin_of_kubectl(bench):
    """What krew does with the archive: unpack, and link the program under the plugin's name."""
    need("kubectl")
    folder = bench.new("krew")
    unpack(bench, folder)
    (folder / "bin").mkdir()
    (folder / "bin" / "kubectl-gc").symlink_to(folder / f"{NAME}-{VERSION}-{bench.platform.name}" / NAME)
    path = f"{folder}/bin:{os.environ['PATH']}"
    output = run(["kubectl", "gc", "--help"], env={**os.environ, "PATH": path})
    assert "Usage: kubectl gc" in output, output


def check_action_installs_what_it_has_verified(bench):
    need("bash", "curl", "sha256sum")
    folder = bench.new("action")
    environment = {
        **os.environ, "RUNNER_TEMP": str(folder), "GITHUB_PATH": str(folder / "path"), "GITHUB_ENV": str(folder / "env"),
        "GITHUB_OUTPUT": str(folder / "output"), "KUBEGC_VERSION": VERSION, "KUBEGC_UP": "true",
        "KUBEGC_ARGUMENTS": "--workloads=off", "KUBEGC_DOWNLOADS": f"file://{bench.folder}/artefacts",
        "XDG_RUNTIME_DIR": str(folder / "run"), "XDG_DATA_HOME": str(folder / "data"), "HOME": str(folder),
        "RUNNER_OS": "Linux", "RUNNER_ARCH": {"amd64": "X64", "arm64": "ARM64"}[bench.platform.machine],
    }
    environment.pop("KUBECONFIG", None)
    (folder / "run").mkdir(mode=0o700)
    script = ROOT / "packaging" / "action" / "install"
    program = folder / f"{NAME}-{VERSION}-{bench.platform.name}" / NAME
    try:
        run(["bash", script], env=environment)
        assert (folder / "path").read_text() == f"{program.parent}\n"
        [line] = (folder / "env").read_text().splitlines()
        name, kubeconfig = line.split("=", 1)
        assert name == "KUBECONFIG" and (folder / "output").read_text() == f"kubeconfig={kubeconfig}\n"
        stuck = json.loads(run([program, "stuck", "-o", "json"], env={**environment, "KUBECONFIG": kubeconfig}))
        assert isinstance(stuck, (dict, list))
    finally:
        if program.exists():
            run([program, "down"], env=environment)
    # What is not what the release says is not run.
    copies = bench.new("tampered")
    archive = bench.path(TARBALL.format(bench.platform.name))
    (copies / archive.name).write_bytes(archive.read_bytes()[:-1] + b"x")
    shutil.copy(bench.path("SHA256SUMS"), copies)
    shutil.rmtree(program.parent)
    said = run(["bash", script], expect=1, env={**environment, "KUBEGC_DOWNLOADS": f"file://{copies}"})
    assert "does not have the checksum" in said, said
    assert not program.exists()
