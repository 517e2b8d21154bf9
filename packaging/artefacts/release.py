"""All artefacts of a release, from its binaries."""
from . import archives, contents, deb, indexes, npm, oci, provenance, sbom, wheel
from .binaries import host
from .facts import NAME, VERSION, DistError

#: Where the image is published.
IMAGE = f"ghcr.io/{NAME}/{NAME}:{VERSION}"


def make(binaries, paths, effort=archives.THOROUGH, libraries=()):
    """{file name: bytes} of every artefact. `paths` are where the binaries are, in the same order."""
    by_platform = {binary.platform: (binary, path) for binary, path in zip(binaries, paths)}
    if len(by_platform) < len(binaries):
        raise DistError("two of the binaries are for the same platform")
    if host() not in by_platform:
        raise DistError(f"none of the binaries runs on this machine ({host().name}), which writes man pages and completions")
    beside = contents.of(by_platform[host()][1].resolve())
    made, tarballs, envtest = {}, {}, {}
    linux = [binary for binary in binaries if binary.platform.system == "linux"]
    if linux:
        made[f"{NAME}-{VERSION}-image.oci.tar"] = oci.image(linux, IMAGE, effort, libraries)[0]
    for platform in sorted(by_platform):
        binary = by_platform[platform][0]
        tarballs[platform] = contents.tarball(binary, beside, effort)
        name, archive = indexes.envtest_archive(binary, effort)
        envtest[name] = archive
        made |= dict([tarballs[platform], sbom.bill(platform)])
        # The node agent and servers in the background are not for Windows: its users get the archive, by krew or by hand.
        if platform.system != "windows":
            made |= dict([wheel.wheel(binary, beside, effort), npm.platform_package(binary, beside, effort)])
        if platform.system == "linux":
            made |= dict([deb.package(binary, beside, effort)])
    made |= envtest
    made |= dict([npm.main_package(beside, effort), indexes.krew(tarballs), indexes.homebrew(tarballs),
                  indexes.envtest_index(envtest)])
    name, chart = oci.chart_archive(effort)
    made |= {name: chart, f"{NAME}-{VERSION}-chart.oci.tar": oci.chart(chart)}
    # Each is named by its digest in the statement, and the statement in the list.
    made |= dict([provenance.statement(made, by_platform)])
    made["SHA256SUMS"] = provenance.checksums(made)
    return made
