//! The version of Kubernetes whose API a process serves.
//!
//! `scripts/kubernetes-version` writes the data about a version: completely for 1.36, and as a difference from it for every other
//! version. All servers of a process share tables, so a process has a single version.

use std::fmt;
use std::str::FromStr;
use std::sync::OnceLock;

/// A minor version of Kubernetes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KubernetesVersion {
    /// The version with the most recordings and comparisons.
    #[default]
    V1_36,
    /// The next version.
    V1_37,
}

static CHOSEN: OnceLock<KubernetesVersion> = OnceLock::new();

impl KubernetesVersion {
    /// All versions in order.
    pub const ALL: [Self; 2] = [Self::V1_36, Self::V1_37];

    /// Returns the version in the form `1.36`.
    #[must_use]
    pub fn minor(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36",
            Self::V1_37 => "1.37",
        }
    }

    /// Returns the number after the dot.
    #[must_use]
    pub fn number(self) -> u32 {
        match self {
            Self::V1_36 => 36,
            Self::V1_37 => 37,
        }
    }

    /// Returns the release that `/version` reports, such as `1.36.2`.
    #[must_use]
    pub fn release(self) -> &'static str {
        match self {
            Self::V1_36 => "1.36.2",
            Self::V1_37 => "1.37.0",
        }
    }

    /// Makes this the version of the process. Must be called before anything else in this crate is used.
    ///
    /// # Errors
    ///
    /// Fails if the process already has another version, because it was chosen or because its tables were read.
    pub fn choose(self) -> Result<(), OtherVersionServed> {
        let served = *CHOSEN.get_or_init(|| self);
        if served == self { Ok(()) } else { Err(OtherVersionServed { wanted: self, served }) }
    }

    /// Returns the version of the process: the chosen one, otherwise the default, which cannot be changed from then on.
    #[must_use]
    pub fn chosen() -> Self {
        *CHOSEN.get_or_init(Self::default)
    }

    /// Returns the difference between this version and 1.36; empty for 1.36 itself.
    pub(crate) fn difference(self, to_1_37: &'static str) -> &'static str {
        match self {
            Self::V1_36 => "",
            Self::V1_37 => to_1_37,
        }
    }
}

/// A feature gate of kube-apiserver that is off in 1.36, and on by default in a later version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FeatureGate {
    /// Pods can mount trust bundles.
    ClusterTrustBundleProjection,
    /// Autoscalers can scale to zero replicas.
    HpaScaleToZero,
    /// StatefulSets can replace several pods at once.
    MaxUnavailableStatefulSet,
    /// Pods can mount their own certificates.
    PodCertificateRequest,
    /// Volumes get their `SELinux` labels by a mount option.
    SeLinuxMount,
    /// Nodes without the driver of a volume accept no pods that need it.
    VolumeLimitScaling,
}

impl FeatureGate {
    /// The gate that rules of types name so, if it changes anything here.
    pub(crate) fn named(name: &str) -> Option<Self> {
        (name == "HPAScaleToZero").then_some(Self::HpaScaleToZero)
    }

    /// Reports whether the gate is on in the version of the process.
    pub(crate) fn is_on(self) -> bool {
        KubernetesVersion::chosen() >= self.since()
    }

    const fn since(self) -> KubernetesVersion {
        match self {
            Self::ClusterTrustBundleProjection
            | Self::HpaScaleToZero
            | Self::MaxUnavailableStatefulSet
            | Self::PodCertificateRequest
            | Self::SeLinuxMount
            | Self::VolumeLimitScaling => KubernetesVersion::V1_37,
        }
    }
}

impl fmt::Display for KubernetesVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.minor())
    }
}

impl FromStr for KubernetesVersion {
    type Err = UnknownVersion;

    fn from_str(text: &str) -> Result<Self, UnknownVersion> {
        let found = Self::ALL.into_iter().find(|version| version.minor() == text);
        found.ok_or_else(|| UnknownVersion(text.into()))
    }
}

/// A version that is not served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownVersion(Box<str>);

impl fmt::Display for UnknownVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = KubernetesVersion::ALL.map(KubernetesVersion::minor).join(" or ");
        write!(f, "Kubernetes {} is not served; expected {known}", self.0)
    }
}

impl std::error::Error for UnknownVersion {}

/// Two servers in one process were configured with different versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OtherVersionServed {
    wanted: KubernetesVersion,
    served: KubernetesVersion,
}

impl fmt::Display for OtherVersionServed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { wanted, served } = self;
        write!(
            f,
            "cannot serve Kubernetes {wanted}: this process serves {served}, and a process has one version"
        )
    }
}

impl std::error::Error for OtherVersionServed {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_minor_versions() {
        for version in KubernetesVersion::ALL {
            assert_eq!(version.minor().parse(), Ok(version));
            assert_eq!(version.minor(), format!("1.{}", version.number()));
            assert!(version.release().starts_with(&format!("{version}.")));
        }
        for text in ["", "1.36.2", "v1.36", "1.35", "1.38", "37"] {
            let error = text.parse::<KubernetesVersion>().unwrap_err().to_string();
            assert_eq!(error, format!("Kubernetes {text} is not served; expected 1.36 or 1.37"));
        }
    }
}
