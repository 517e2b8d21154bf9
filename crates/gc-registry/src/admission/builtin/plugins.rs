//! The built-in admission plugins by name, and the set of enabled ones.

macro_rules! plugins {
    ($($name:ident, $default:literal, $about:literal;)*) => {
        /// A built-in admission plugin.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Plugin {
            $(#[doc = $about] $name,)*
        }

        static TABLE: &[Row] = &[$(Row { plugin: Plugin::$name, name: stringify!($name), is_on: $default },)*];
    };
}

plugins! {
    NamespaceLifecycle, true, "Nothing is created in a namespace that ends or does not exist.";
    LimitRanger, true, "LimitRanges give containers defaults and bounds.";
    ServiceAccount, false, "Pods run as a ServiceAccount that exists, and get its token.";
    TaintNodesByCondition, true, "A new node is tainted until it is ready.";
    PodSecurity, true, "Labels of a namespace say how privileged its pods may be.";
    Priority, true, "A priority class becomes a number.";
    DefaultTolerationSeconds, true, "Pods tolerate short failures of nodes.";
    DefaultStorageClass, true, "Claims without a class get the default one.";
    StorageObjectInUseProtection, true, "Volumes and claims in use are not removed.";
    OwnerReferencesPermissionEnforcement, true, "Who blocks an owner's deletion may finalize the owner.";
    PersistentVolumeClaimResize, true, "Only what can grow is resized.";
    RuntimeClass, true, "A runtime class adds its overhead and scheduling.";
    CertificateApproval, true, "Who approves requests may do so for their signer.";
    CertificateSigning, true, "Who signs requests may do so for their signer.";
    ClusterTrustBundleAttest, true, "Who publishes certificates for a signer may attest for it.";
    CertificateSubjectRestriction, true, "No certificate is asked for the group system:masters.";
    NodeDeclaredFeatureValidator, true, "Pods change only in ways that their node declares to know.";
    PodResizeValidator, true, "Pods grow no further than their node has room.";
    DefaultIngressClass, true, "Ingresses without a class get the default one.";
    ResourceQuota, true, "Quotas bound what a namespace uses.";
}

struct Row {
    plugin: Plugin,
    name: &'static str,
    is_on: bool,
}

/// The enabled plugins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plugins(u32);

/// Name that belongs to no plugin.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is no admission plugin of this server; it has {names}", names = Plugins::names().join(", "))]
pub struct UnknownPlugin(String);

impl Default for Plugins {
    fn default() -> Self {
        let on = TABLE.iter().filter(|row| row.is_on);
        on.fold(Self(0), |plugins, row| plugins.with(row.plugin, true))
    }
}

impl Plugins {
    /// Returns the set with a plugin enabled or disabled.
    #[must_use]
    pub fn with(self, plugin: Plugin, on: bool) -> Self {
        let bit = 1 << plugin as u32;
        Self(if on { self.0 | bit } else { self.0 & !bit })
    }

    /// Returns the set with a plugin, given by name, enabled or disabled.
    pub fn with_named(self, name: &str, on: bool) -> Result<Self, UnknownPlugin> {
        let row = TABLE.iter().find(|row| row.name == name);
        row.map(|row| self.with(row.plugin, on)).ok_or_else(|| UnknownPlugin(name.to_owned()))
    }

    /// Reports whether a plugin is enabled.
    #[must_use]
    pub fn has(self, plugin: Plugin) -> bool {
        self.0 & (1 << plugin as u32) != 0
    }

    /// Returns the names of all plugins.
    #[must_use]
    pub fn names() -> Vec<&'static str> {
        TABLE.iter().map(|row| row.name).collect()
    }
}
