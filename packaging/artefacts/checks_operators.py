"""The example operators, run with the packages that were made."""
import shutil

from .checks import Skipped, run
from .checks_install import environment, install_npm, install_wheel
from .facts import NAME, ROOT

EXAMPLES = ROOT / "examples"


def check_operator_in_kopf(bench):
    python = install_wheel(bench, "kopf-venv")
    output = run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", EXAMPLES / "kopf"], env=environment(), cwd=bench.folder)
    assert "1 passed" in output, output


def check_operator_in_a_clone(bench):
    folder = EXAMPLES / "client-node"
    if not (folder / "node_modules" / NAME).is_dir():
        raise Skipped("the packages of examples/client-node (scripts/setup)")
    output = run(["npm", "test"], cwd=folder, env={**environment(), "KUBEGC_BINARY": str(bench.folder / NAME)})
    assert "# pass 1" in output, output


def check_operator_with_the_client_for_node(bench):
    packages = EXAMPLES / "client-node" / "node_modules" / "@kubernetes"
    if not packages.is_dir():
        raise Skipped("the packages of examples/client-node (scripts/setup)")
    folder = bench.new("examples")
    prefix = install_npm(bench, folder / "client-node")
    shutil.copy(EXAMPLES / "backups.json", folder)
    for module in (EXAMPLES / "client-node").glob("*.mjs"):
        shutil.copy(module, prefix)
    (prefix / "node_modules" / "@kubernetes").symlink_to(packages)
    output = run(["node", "--test", "operator.test.mjs"], cwd=prefix, env=environment())
    assert "# pass 1" in output, output
