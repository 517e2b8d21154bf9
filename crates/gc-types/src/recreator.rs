//! Tools that recreate a deleted object, and the labels and annotations with which they track it.

use std::sync::Arc;

/// Controller or tool, other than an owner, that recreates an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Recreator {
    /// An Argo CD application.
    ArgoCd(Arc<str>),
    /// A Flux Kustomization.
    FluxKustomization(Arc<str>),
    /// A Flux `HelmRelease`.
    FluxHelmRelease(Arc<str>),
    /// A Helm release, at its next upgrade.
    Helm(Arc<str>),
}

impl Recreator {
    /// Describes the recreator, and when it acts.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::ArgoCd(name) => format!("Argo CD application {name} will recreate this"),
            Self::FluxKustomization(name) => format!("Flux Kustomization {name} will recreate this"),
            Self::FluxHelmRelease(name) => format!("Flux HelmRelease {name} will recreate this"),
            Self::Helm(name) => format!("the next upgrade of Helm release {name} recreates this"),
        }
    }
}

impl From<&Self> for Recreator {
    fn from(recreator: &Self) -> Self {
        recreator.clone()
    }
}

/// An annotation or label with which a tool tracks objects; the first one that an object has counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TrackingMark {
    /// Argo CD's tracking ID, an annotation.
    ArgoCdTrackingId,
    /// Argo CD's label.
    ArgoCdInstance,
    /// The label of Flux Kustomizations.
    FluxKustomization,
    /// The label of Flux `HelmReleases`.
    FluxHelmRelease,
    /// Helm's annotation.
    HelmRelease,
}

impl TrackingMark {
    /// All marks, in descending order of precedence.
    pub const ALL: [Self; 5] = [
        Self::ArgoCdTrackingId,
        Self::ArgoCdInstance,
        Self::FluxKustomization,
        Self::FluxHelmRelease,
        Self::HelmRelease,
    ];

    /// Returns its name as an annotation or label.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::ArgoCdTrackingId => "argocd.argoproj.io/tracking-id",
            Self::ArgoCdInstance => "argocd.argoproj.io/instance",
            Self::FluxKustomization => "kustomize.toolkit.fluxcd.io/name",
            Self::FluxHelmRelease => "helm.toolkit.fluxcd.io/name",
            Self::HelmRelease => "meta.helm.sh/release-name",
        }
    }

    /// Reports whether it is a label.
    #[must_use]
    pub const fn is_label(self) -> bool {
        matches!(self, Self::ArgoCdInstance | Self::FluxKustomization | Self::FluxHelmRelease)
    }

    /// Returns the mark with this name as an annotation.
    #[must_use]
    pub fn of_annotation(key: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| !mark.is_label() && mark.key().as_bytes() == key)
    }

    /// Returns the mark with this name as a label.
    #[must_use]
    pub fn of_label(key: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.is_label() && mark.key().as_bytes() == key)
    }

    /// Returns the recreator of an object with this value of the mark.
    pub fn recreator(self, content: &str, share: impl FnOnce(&str) -> Arc<str>) -> Option<Recreator> {
        Some(match self {
            // A tracking ID is `application:group/kind:namespace/name`.
            Self::ArgoCdTrackingId => Recreator::ArgoCd(share(content.split_once(':')?.0)),
            Self::ArgoCdInstance => Recreator::ArgoCd(share(content)),
            Self::FluxKustomization => Recreator::FluxKustomization(share(content)),
            Self::FluxHelmRelease => Recreator::FluxHelmRelease(share(content)),
            Self::HelmRelease => Recreator::Helm(share(content)),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_names_what_recreates() {
        let found: Vec<Option<String>> = TrackingMark::ALL
            .into_iter()
            .map(|mark| Some(mark.recreator("shop:apps/Deployment:n/web", |name| name.into())?.message()))
            .collect();
        let whole = "shop:apps/Deployment:n/web";
        assert_eq!(
            found,
            [
                Some("Argo CD application shop will recreate this".to_owned()),
                Some(format!("Argo CD application {whole} will recreate this")),
                Some(format!("Flux Kustomization {whole} will recreate this")),
                Some(format!("Flux HelmRelease {whole} will recreate this")),
                Some(format!("the next upgrade of Helm release {whole} recreates this")),
            ]
        );
        assert_eq!(TrackingMark::ArgoCdTrackingId.recreator("no tracking id", |name| name.into()), None);
        for mark in TrackingMark::ALL {
            let key = mark.key().as_bytes();
            let found = (TrackingMark::of_label(key), TrackingMark::of_annotation(key));
            assert_eq!(found, if mark.is_label() { (Some(mark), None) } else { (None, Some(mark)) });
        }
    }
}
