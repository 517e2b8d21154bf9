//! The kinds that collectors watch.

use std::sync::Arc;

use gc_types::{Change, Gvr, ObjectKey, PropagationPolicy, Request, ResourceId, ResourceInfo, Scope};

use super::meta::Meta;

macro_rules! kinds {
    ($($(#[doc = $doc:literal])* $kind:ident: $served:expr;)*) => {
        /// A kind that some collector watches.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($(#[doc = $doc])* $kind,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$kind),*];

            /// Returns its group, version, resource, kind and scope.
            const fn served(self) -> (&'static str, &'static str, &'static str, &'static str, Scope) {
                match self {
                    $(Self::$kind => $served,)*
                }
            }
        }
    };
}

kinds! {
    /// `v1` Pod
    Pod: ("", "v1", "pods", "Pod", Scope::Namespaced);
    /// `v1` Node
    Node: ("", "v1", "nodes", "Node", Scope::Cluster);
    /// `batch/v1` Job
    Job: ("batch", "v1", "jobs", "Job", Scope::Namespaced);
    /// `certificates.k8s.io/v1` CertificateSigningRequest
    SigningRequest: ("certificates.k8s.io", "v1", "certificatesigningrequests", "CertificateSigningRequest", Scope::Cluster);
    /// `v1` PersistentVolume
    Volume: ("", "v1", "persistentvolumes", "PersistentVolume", Scope::Cluster);
    /// `v1` PersistentVolumeClaim
    Claim: ("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Scope::Namespaced);
    /// `coordination.k8s.io/v1` Lease
    Lease: ("coordination.k8s.io", "v1", "leases", "Lease", Scope::Namespaced);
    /// `storage.k8s.io/v1` VolumeAttachment
    Attachment: ("storage.k8s.io", "v1", "volumeattachments", "VolumeAttachment", Scope::Cluster);
    /// `certificates.k8s.io/v1beta1` PodCertificateRequest, or `v1`
    PodCertificate: ("certificates.k8s.io", "v1beta1", "podcertificaterequests", "PodCertificateRequest", Scope::Namespaced);
    /// `coordination.k8s.io/v1beta1` LeaseCandidate
    LeaseCandidate: ("coordination.k8s.io", "v1beta1", "leasecandidates", "LeaseCandidate", Scope::Namespaced);
    /// Metadata of a `v1` Secret of type `kubernetes.io/service-account-token`
    TokenSecret: ("", "v1", "secrets", "Secret", Scope::Namespaced);
    /// `v1` ServiceAccount
    ServiceAccount: ("", "v1", "serviceaccounts", "ServiceAccount", Scope::Namespaced);
    /// `v1` ConfigMap with the date since which uses of tokens are tracked
    TokenTracking: ("", "v1", "configmaps", "ConfigMap", Scope::Namespaced);
    /// `v1` Pod, of which only the names of the Secrets that it uses are read
    SecretUser: ("", "v1", "pods", "Pod", Scope::Namespaced);
    /// `internal.apiserver.k8s.io/v1alpha1` StorageVersion
    StorageVersion: ("internal.apiserver.k8s.io", "v1alpha1", "storageversions", "StorageVersion", Scope::Cluster);
    /// `coordination.k8s.io/v1` Lease in `kube-system`
    SystemLease: ("coordination.k8s.io", "v1", "leases", "Lease", Scope::Namespaced);
    /// `storage.k8s.io/v1` VolumeAttributesClass
    AttributesClass: ("storage.k8s.io", "v1", "volumeattributesclasses", "VolumeAttributesClass", Scope::Cluster);
}

/// Part of a resource that is requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Selection<'a> {
    /// Restricts it to this namespace, unless it is empty.
    pub namespace: &'a str,
    /// A field selector; empty selects all.
    pub field_selector: &'a str,
    /// Restricts it to the metadata of objects.
    pub metadata_only: bool,
}

impl Kind {
    /// Returns the number by which requests identify the kind's resource.
    #[must_use]
    pub const fn resource(self) -> ResourceId {
        ResourceId(self as u32)
    }

    /// Returns where the resource is served.
    #[must_use]
    pub fn info(self) -> ResourceInfo {
        self.info_of(self.served().1)
    }

    /// Returns where the resource may be served: the versions of all supported Kubernetes releases, the newest first.
    #[must_use]
    pub fn infos(self) -> Vec<ResourceInfo> {
        // Stable since 1.37, which serves the beta version only on request.
        let newer = (self == Self::PodCertificate).then_some("v1");
        newer.into_iter().chain([self.served().1]).map(|version| self.info_of(version)).collect()
    }

    fn info_of(self, version: &str) -> ResourceInfo {
        let (group, _, resource, kind, scope) = self.served();
        ResourceInfo {
            id: self.resource(),
            gvr: Gvr { group: group.into(), version: version.into(), resource: resource.into() },
            kind: kind.into(),
            scope,
            served_api_versions: vec![gc_types::api_version(group, version).into()],
            watched: true,
            comparable_versions: true,
        }
    }

    /// Returns the part of the resource that belongs to this kind.
    #[must_use]
    pub const fn selection(self) -> Selection<'static> {
        match self {
            // The server selects by type, so only the metadata of such Secrets is ever read.
            Self::TokenSecret => Selection {
                namespace: "",
                field_selector: "type=kubernetes.io/service-account-token",
                metadata_only: true,
            },
            Self::TokenTracking => Selection {
                namespace: "kube-system",
                field_selector: "metadata.name=kube-apiserver-legacy-service-account-token-tracking",
                metadata_only: false,
            },
            Self::SystemLease => {
                Selection { namespace: "kube-system", field_selector: "", metadata_only: false }
            }
            _ => Selection { namespace: "", field_selector: "", metadata_only: false },
        }
    }

    /// Returns the deletion of an object, conditional on the observed UID and version.
    pub(crate) fn deletion(self, meta: &Meta, policy: PropagationPolicy) -> Request {
        let (key, uid) = (self.key(&meta.namespace, &meta.name), meta.uid.clone());
        Request::Delete { key, uid, resource_version: Some(meta.resource_version), policy }
    }

    /// Returns a change of an object, conditional on the observed UID and version.
    pub(crate) fn guarded(self, meta: &Meta, change: Change) -> Request {
        let (key, uid) = (self.key(&meta.namespace, &meta.name), meta.uid.clone());
        Request::Guarded { key, uid, resource_version: meta.resource_version, change }
    }

    /// Returns the key of an object of this kind.
    #[must_use]
    pub fn key(self, namespace: &Arc<str>, name: &Arc<str>) -> ObjectKey {
        ObjectKey { resource: self.resource(), namespace: Arc::clone(namespace), name: Arc::clone(name) }
    }
}
