//! Codes of the causes that block a deletion.

macro_rules! codes {
    ($($name:ident: $message:literal;)*) => {
        /// Reason why something is stuck. A code never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Code {
            $(#[doc = $message] $name,)*
        }

        impl Code {
            /// Every code.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// Returns the code for programs.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$name => stringify!($name),)*
                }
            }

            /// Returns the meaning.
            #[must_use]
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$name => $message,)*
                }
            }
        }
    };
}

impl Code {
    /// Reports whether it means that a controller has not acted yet, which cannot be concluded right after a deletion.
    #[must_use]
    pub const fn is_absence(self) -> bool {
        matches!(
            self,
            Self::CollectorAbsent
                | Self::ContentNotDeleted
                | Self::DependentNotDeleted
                | Self::ProtectionNotReleased
        )
    }
}

codes! {
    AdmissionPolicyRefuses: "A ValidatingAdmissionPolicy refuses the deletion, or the removal of owner references.";
    AdmissionWebhookFails: "An admission webhook refuses the deletion, or does not answer.";
    APIServiceUnavailable: "An aggregated API is down, so its remaining objects are unknown.";
    ClaimInUse: "A pod still uses the claim.";
    CollectorAbsent: "Nothing blocks the object any more, and no garbage collector removes its finalizer.";
    ContentDeletionFails: "The contents of a namespace cannot be deleted.";
    ContentNotDeleted: "Objects remain that nothing deletes.";
    ConversionWebhookFails: "Custom resources cannot be read, because their conversion webhook fails.";
    DependentNotDeleted: "A blocking dependent remains that nothing deletes.";
    DiscoveryFails: "The server does not know what it serves.";
    FinalizerHeld: "A finalizer waits for its controller.";
    ForegroundFinalizerApplied: "A tool applied the finalizer foregroundDeletion, and applies it again when it is removed.";
    JobTrackingFinalizer: "A pod waits for a Job controller to count it.";
    KubeletSilent: "The kubelet of the pod's node does not report.";
    NodeGone: "The pod's node does not exist.";
    OwnerUnreadable: "No owner is known to live, and one cannot be looked up.";
    PodPastGrace: "The kubelet has not stopped the pod within its grace period.";
    PodUnscheduled: "The pod was never assigned to a node, and no pod garbage collector deletes it.";
    Protected: "A rule of kubegc protect, or the annotation kubegc.io/protect, keeps an object that the deletion waits for.";
    ProtectionNotReleased: "Nothing uses the object any more, and its protection finalizer remains.";
    ResourceUnreadable: "A resource cannot be read, so it is unknown whether dependents remain.";
    StorageNotDeleted: "The claim of a volume is gone, and nothing deletes its storage.";
    VolumeAttached: "The volume is still attached to a node.";
    VolumeInUse: "The volume is bound to a claim.";
}
