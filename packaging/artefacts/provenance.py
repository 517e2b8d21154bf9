"""The provenance of the artefacts: an in-toto statement that names each by its digest, and what it was built from.

It is not signed: the release workflow signs its own, with the identity of the workflow.
"""
import hashlib
import json
import os
import subprocess
from datetime import datetime, timezone

from .facts import NAME, REPOSITORY, ROOT, VERSION, git, source_date

BUILD_TYPE = f"{REPOSITORY}/blob/main/docs/contributing/releasing.md#how-a-binary-is-built"
#: Who built it, where no workflow says so.
LOCAL_BUILDER = f"{REPOSITORY}/blob/main/scripts/dist"


def sha256(contents):
    """The digest in hexadecimal."""
    return hashlib.sha256(contents).hexdigest()


def checksums(artefacts):
    """The lines that `sha256sum -c` checks."""
    return "".join(f"{sha256(contents)}  {name}\n" for name, contents in sorted(artefacts.items())).encode()


def _builder():
    if os.environ.get("GITHUB_ACTIONS") == "true":
        server, repository = os.environ["GITHUB_SERVER_URL"], os.environ["GITHUB_REPOSITORY"]
        run = f"{server}/{repository}/actions/runs/{os.environ['GITHUB_RUN_ID']}"
        return f"{server}/{os.environ['GITHUB_WORKFLOW_REF']}", run
    return LOCAL_BUILDER, None


def statement(artefacts, platforms):
    """The statement about these artefacts: its file name and bytes."""
    compiler = subprocess.run(["rustc", "--version"], cwd=ROOT, capture_output=True, text=True).stdout.strip()
    commit = git("rev-parse", "HEAD")
    builder, run = _builder()
    finished = datetime.fromtimestamp(source_date(), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {"finishedOn": finished, **({"invocationId": run} if run else {})}
    document = {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": [{"name": name, "digest": {"sha256": sha256(contents)}} for name, contents in sorted(artefacts.items())],
        "predicateType": "https://slsa.dev/provenance/v1",
        "predicate": {
            "buildDefinition": {
                "buildType": BUILD_TYPE,
                "externalParameters": {
                    "repository": REPOSITORY, "version": VERSION, "targets": sorted(one.rust_target for one in platforms),
                },
                "internalParameters": {
                    "compiler": compiler, "profile": "dist", "sourceDateEpoch": source_date(),
                    # What is not committed is not in the commit that is named below.
                    "uncommittedChanges": bool(git("status", "--porcelain", "--untracked-files=no")),
                },
                "resolvedDependencies": [
                    {"uri": f"git+{REPOSITORY}", "digest": {"gitCommit": commit}},
                    {"name": "Cargo.lock", "digest": {"sha256": sha256((ROOT / "Cargo.lock").read_bytes())}},
                    {"name": "ui/package-lock.json", "digest": {"sha256": sha256((ROOT / "ui/package-lock.json").read_bytes())}},
                ],
            },
            "runDetails": {"builder": {"id": builder}, "metadata": metadata},
        },
    }
    return f"{NAME}-{VERSION}.intoto.json", json.dumps(document, indent=1, sort_keys=True).encode() + b"\n"
