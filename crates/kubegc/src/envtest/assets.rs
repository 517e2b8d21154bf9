//! `kubegc envtest assets`: the folder that test frameworks look into.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};

use crate::UsageError;

/// The names under which this binary is a program of a control plane.
const PROGRAMS: [&str; 2] = ["kube-apiserver", "etcd"];
const KUBECTL: &str = "kubectl";

/// What is done for test frameworks.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum EnvtestCommand {
    /// Write kube-apiserver, etcd and kubectl to a directory, for $KUBEBUILDER_ASSETS and BinaryAssetsDirectory
    Assets(AssetsOptions),
}

/// Options of `kubegc envtest assets`.
#[derive(Clone, Debug, Args)]
pub(crate) struct AssetsOptions {
    /// Directory to write to; created if it does not exist
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

/// Runs it.
pub(crate) fn run(command: &EnvtestCommand) -> anyhow::Result<()> {
    let EnvtestCommand::Assets(options) = command;
    let binary = std::env::current_exe().context("where this program is")?;
    let kubectl = on_path(KUBECTL);
    write(&options.folder, &binary, kubectl.as_deref())?;
    let folder = options.folder.canonicalize()?;
    let mut out = std::io::stdout().lock();
    if kubectl.is_none() {
        writeln!(out, "kubectl is not on PATH and is left out; only tests that call it need it.")?;
    }
    writeln!(out, "export KUBEBUILDER_ASSETS={}", folder.display())?;
    Ok(())
}

fn write(folder: &Path, binary: &Path, kubectl: Option<&Path>) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder).map_err(|error| {
        UsageError::new(format!("cannot create the directory {}: {error}", folder.display()))
    })?;
    let place = |name: &str| {
        let path = folder.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(error).with_context(|| format!("cannot replace {}", path.display()))
            }
            _ => Ok(path),
        }
    };
    for name in PROGRAMS {
        let path = place(name)?;
        // A link of its own outlives the file that it was made from, as a copy does, and takes no space.
        std::fs::hard_link(binary, &path)
            .or_else(|_| std::fs::copy(binary, &path).map(drop))
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    if let Some(kubectl) = kubectl {
        let path = place(KUBECTL)?;
        std::os::unix::fs::symlink(kubectl, &path)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(name)).find(|file| file.is_file())
}
