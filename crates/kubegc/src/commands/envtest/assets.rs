//! `kubegc envtest assets`: the directory that test frameworks expect, and the archives that they download.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use gc_process::{UsageError, kubeconfig};
use gc_registry::kubernetes::KubernetesVersion;

use super::archive::{self, Entry};

/// The names under which this binary acts as a control plane program.
const PROGRAMS: [&str; 2] = ["kube-apiserver", "etcd"];
const KUBECTL: &str = "kubectl";
/// Subdirectory in which setup-envtest keeps each version.
const STORE: &str = "k8s";
/// Where the programs are in the data directory, if no other directory is named.
const DEFAULT_FOLDER: &str = "envtest";
/// Index that `setup-envtest --index` and `BinaryAssetsIndexURL` read.
const INDEX: &str = "envtest-releases.yaml";
/// The etcd of an archive. It is a script because frameworks skip links when they unpack an archive.
const ETCD: &[u8] = include_bytes!("etcd.sh");
/// Placeholder: frameworks download a version again if it lacks a kubectl, which most tests never call.
const NO_KUBECTL: &str = "#!/bin/sh\n\
    echo \"kubectl was not on PATH when kubegc wrote this; put the real one in place of $0\" >&2\n\
    exit 1\n";

/// Commands for test frameworks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum EnvtestCommand {
    /// Write kube-apiserver, etcd and kubectl to a directory, for $KUBEBUILDER_ASSETS, BinaryAssetsDirectory and setup-envtest
    Assets(AssetsOptions),
}

/// Options of `kubegc envtest assets`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AssetsOptions {
    /// Directory to write to; created if it does not exist. Without one, the directory is `envtest` in the data directory, and its path
    /// is all that is printed, for KUBEBUILDER_ASSETS=$(kubegc envtest assets)
    #[arg(value_name = "DIR")]
    folder: Option<PathBuf>,
    /// Also write the archive and the index that setup-envtest --index downloads; URL is where DIR will be served
    #[arg(long, value_name = "URL", requires = "folder")]
    archive_url: Option<String>,
    /// Version of Kubernetes that the programs serve: 1.36 or 1.37
    #[arg(long, value_name = "VERSION", default_value_t)]
    kubernetes_version: KubernetesVersion,
}

/// Runs an `envtest` subcommand.
pub(crate) fn run(command: &EnvtestCommand) -> anyhow::Result<()> {
    let EnvtestCommand::Assets(options) = command;
    let url = options.archive_url.as_deref().map(checked_url).transpose()?;
    let binary = std::env::current_exe().context("where this program is")?;
    let kubectl = on_path(KUBECTL);
    let version = options.kubernetes_version;
    let folder = match &options.folder {
        Some(folder) => folder.clone(),
        None => kubeconfig::default_data_dir()?.join(DEFAULT_FOLDER),
    };
    write(&folder, version, &binary, kubectl.as_deref())?;
    let folder = std::path::absolute(&folder)?;
    // The programs know their version by the name of their folder, if it is not the default.
    let assets =
        if version == KubernetesVersion::default() { folder.clone() } else { store(&folder, version) };
    let mut out = std::io::stdout().lock();
    if options.folder.is_none() {
        writeln!(out, "{}", assets.display())?;
        return Ok(());
    }
    if kubectl.is_none() {
        writeln!(out, "kubectl is not on PATH and is left out; only tests that call it need it.")?;
    }
    writeln!(out, "export KUBEBUILDER_ASSETS={}", assets.display())?;
    let release = version.release();
    writeln!(out, "setup-envtest use {release} --installed-only --bin-dir {}", folder.display())?;
    if let Some(url) = url {
        write_archive(&folder, version, url, kubectl.as_deref())?;
        writeln!(out, "setup-envtest use {release} --index {url}/{INDEX}")?;
    }
    Ok(())
}

/// Checks that Go's client can download from a URL, and returns it without a trailing slash.
fn checked_url(url: &str) -> Result<&str, UsageError> {
    let is_plain = url.chars().all(|character| character.is_ascii_graphic() && !"\"'#?".contains(character));
    let place = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    match place.map(|place| place.trim_end_matches('/')) {
        Some(place) if is_plain && !place.is_empty() => Ok(url.trim_end_matches('/')),
        _ => Err(UsageError::new(format!(
            "--archive-url {url}: expected http://HOST[:PORT][/PATH] or https://…, where DIR will be served"
        ))),
    }
}

/// Returns the platform as Go names it.
fn platform() -> String {
    let system = if std::env::consts::OS == "macos" { "darwin" } else { std::env::consts::OS };
    let machine = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    };
    format!("{system}-{machine}")
}

/// Returns the directory in which setup-envtest expects a version.
fn store(folder: &Path, version: KubernetesVersion) -> PathBuf {
    folder.join(STORE).join(format!("{}-{}", version.release(), platform()))
}

/// Writes the programs to the directory, and again to the one that setup-envtest expects.
fn write(
    folder: &Path,
    version: KubernetesVersion,
    binary: &Path,
    kubectl: Option<&Path>,
) -> anyhow::Result<()> {
    let store = store(folder, version);
    for folder in [folder, &store] {
        std::fs::create_dir_all(folder).map_err(|error| {
            UsageError::new(format!("cannot create the directory {}: {error}", folder.display()))
        })?;
    }
    let mut source = binary.to_owned();
    for folder in [folder, &store] {
        for name in PROGRAMS {
            // A link of its own outlives the file that it was made from, as a copy does, and takes no space.
            let link = |path: &Path| {
                std::fs::hard_link(&source, path).or_else(|_| std::fs::copy(&source, path).map(drop))
            };
            // Where the binary is on another filesystem, one copy of it is enough.
            source = replace(folder, name, link)?;
        }
        match kubectl {
            Some(kubectl) => {
                replace(folder, KUBECTL, |path| gc_host::link(kubectl, path))?;
            }
            None if folder == store => {
                replace(folder, KUBECTL, |path| write_executable(path, NO_KUBECTL))?;
            }
            // The link of an earlier call may lead to nothing by now.
            None => remove(&folder.join(program_file(KUBECTL)))?,
        }
    }
    Ok(())
}

fn remove(path: &Path) -> anyhow::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot replace {}", path.display()))
        }
        _ => Ok(()),
    }
}

/// Makes a file in the place of another one in one step: several of these commands may run at a time, and what runs is not disturbed.
fn replace(
    folder: &Path,
    name: &str,
    make: impl FnOnce(&Path) -> std::io::Result<()>,
) -> anyhow::Result<PathBuf> {
    let name = program_file(name);
    let (path, fresh) = (folder.join(&name), folder.join(format!(".{name}.{}", std::process::id())));
    remove(&fresh)?;
    make(&fresh)
        .and_then(|()| std::fs::rename(&fresh, &path))
        .with_context(|| format!("cannot write {}", path.display()))?;
    // It is still there where both names are links to one file.
    remove(&fresh)?;
    Ok(path)
}

fn write_executable(path: &Path, text: &str) -> std::io::Result<()> {
    gc_host::executable(File::options().write(true).create_new(true)).open(path)?.write_all(text.as_bytes())
}

/// Writes the archive for this platform, and an index that lists it.
fn write_archive(
    folder: &Path,
    version: KubernetesVersion,
    url: &str,
    kubectl: Option<&Path>,
) -> anyhow::Result<()> {
    let release = version.release();
    let name = format!("envtest-v{release}-{}.tar.gz", platform());
    let path = folder.join(&name);
    let read = |path: &Path| std::fs::read(path).with_context(|| format!("cannot read {}", path.display()));
    let kubectl = kubectl.map_or_else(|| Ok(NO_KUBECTL.as_bytes().to_vec()), read)?;
    let program = read(&folder.join(program_file(PROGRAMS[0])))?;
    // Windows runs no scripts of a shell.
    let etcd = if cfg!(windows) { &program } else { ETCD };
    let names = [PROGRAMS[0], PROGRAMS[1], KUBECTL].map(program_file);
    let contents: [&[u8]; 3] = [&program, etcd, &kubectl];
    let entries = names.iter().zip(contents).map(|(name, contents)| Entry { name, contents });
    let writing = || format!("cannot write {}", path.display());
    let file = File::create(&path).with_context(writing)?;
    let hash = archive::write(BufWriter::new(file), entries).with_context(writing)?;
    let index =
        format!("releases:\n  v{release}:\n    {name}:\n      hash: {hash}\n      selfLink: {url}/{name}\n");
    let path = folder.join(INDEX);
    std::fs::write(&path, index).with_context(|| format!("cannot write {}", path.display()))
}

/// Returns the name of a program's file: on Windows, `.exe` ends it.
fn program_file(name: &str) -> String {
    format!("{name}{}", std::env::consts::EXE_SUFFIX)
}

fn on_path(name: &str) -> Option<PathBuf> {
    let (path, name) = (std::env::var_os("PATH")?, program_file(name));
    std::env::split_paths(&path).map(|folder| folder.join(&name)).find(|file| file.is_file())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn urls_are_those_that_can_be_downloaded_from() {
        for (url, expected) in [
            ("http://127.0.0.1:8000", "http://127.0.0.1:8000"),
            ("https://files.example.com/kubegc//", "https://files.example.com/kubegc"),
        ] {
            assert_eq!(checked_url(url).unwrap(), expected);
        }
        for url in [
            "",
            "http://",
            "http:///",
            "file:///tmp",
            "files.example.com",
            "http://a b",
            "http://a#b",
            "http://a\nb",
        ] {
            assert!(checked_url(url).is_err(), "{url}");
        }
    }
}
