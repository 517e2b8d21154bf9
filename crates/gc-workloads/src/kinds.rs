//! The kinds that workload controllers observe and write, and where the API serves them.

use std::sync::Arc;

/// Location at which a kind is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServedAt {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Resource name in paths.
    pub resource: &'static str,
    /// Kind, as objects name it.
    pub kind: &'static str,
    /// True if its objects are namespaced.
    pub namespaced: bool,
}

macro_rules! kinds {
    ($($name:ident $group:literal $version:literal $resource:literal $namespaced:literal;)*) => {
        /// A kind of object.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Kind {
            $(#[doc = $resource] $name,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// Returns where it is served.
            #[must_use]
            pub const fn served(self) -> ServedAt {
                match self {
                    $(Self::$name => ServedAt {
                        group: $group,
                        version: $version,
                        resource: $resource,
                        kind: stringify!($name),
                        namespaced: $namespaced,
                    },)*
                }
            }
        }
    };
}

kinds! {
    Namespace "" "v1" "namespaces" false;
    Node "" "v1" "nodes" false;
    Pod "" "v1" "pods" true;
    Service "" "v1" "services" true;
    Endpoints "" "v1" "endpoints" true;
    ServiceAccount "" "v1" "serviceaccounts" true;
    ConfigMap "" "v1" "configmaps" true;
    PersistentVolumeClaim "" "v1" "persistentvolumeclaims" true;
    PersistentVolume "" "v1" "persistentvolumes" false;
    ReplicationController "" "v1" "replicationcontrollers" true;
    ResourceQuota "" "v1" "resourcequotas" true;
    Event "" "v1" "events" true;
    ReplicaSet "apps" "v1" "replicasets" true;
    Deployment "apps" "v1" "deployments" true;
    StatefulSet "apps" "v1" "statefulsets" true;
    DaemonSet "apps" "v1" "daemonsets" true;
    ControllerRevision "apps" "v1" "controllerrevisions" true;
    Job "batch" "v1" "jobs" true;
    CronJob "batch" "v1" "cronjobs" true;
    EndpointSlice "discovery.k8s.io" "v1" "endpointslices" true;
    PodDisruptionBudget "policy" "v1" "poddisruptionbudgets" true;
    StorageClass "storage.k8s.io" "v1" "storageclasses" false;
    Lease "coordination.k8s.io" "v1" "leases" true;
    CertificateSigningRequest "certificates.k8s.io" "v1" "certificatesigningrequests" false;
    ResourceClaim "resource.k8s.io" "v1" "resourceclaims" true;
    ClusterRole "rbac.authorization.k8s.io" "v1" "clusterroles" false;
}

impl Kind {
    /// Returns `apiVersion` of its objects.
    #[must_use]
    pub fn api_version(self) -> String {
        let ServedAt { group, version, .. } = self.served();
        gc_types::api_version(group, version)
    }

    /// Returns its name in objects.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.served().kind
    }

    /// Returns the field selector of its watch; empty for all.
    #[must_use]
    pub const fn field_selector(self) -> &'static str {
        match self {
            // Only these ConfigMaps matter to a controller.
            Self::ConfigMap => "metadata.name=kube-root-ca.crt",
            _ => "",
        }
    }

    /// Returns the path of its objects in a namespace, or of all of them if `namespace` is empty.
    #[must_use]
    pub fn collection_path(self, namespace: &str) -> String {
        let ServedAt { group, version, resource, namespaced, .. } = self.served();
        let prefix = gc_types::api_path(group, version);
        if namespaced && !namespace.is_empty() {
            format!("{prefix}/namespaces/{namespace}/{resource}")
        } else {
            format!("{prefix}/{resource}")
        }
    }

    /// Returns the key of an object of this kind.
    #[must_use]
    pub fn key(self, namespace: &str, name: &str) -> Key {
        Key { kind: self, namespace: namespace.into(), name: name.into() }
    }

    /// Returns the kind that an owner reference names.
    #[must_use]
    pub fn of_reference(api_version: &str, kind: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|known| known.name() == kind && known.api_version() == api_version)
    }
}

/// Key of an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    /// Kind of the object.
    pub kind: Kind,
    /// Namespace of the object; empty for cluster-scoped kinds.
    pub namespace: Arc<str>,
    /// Name of the object.
    pub name: Arc<str>,
}

impl Key {
    /// Returns the path of the object.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{}/{}", self.kind.collection_path(&self.namespace), self.name)
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let resource = self.kind.served().resource;
        if self.namespace.is_empty() {
            write!(f, "{resource}/{}", self.name)
        } else {
            write!(f, "{resource}/{}/{}", self.namespace, self.name)
        }
    }
}
