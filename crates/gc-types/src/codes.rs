//! Codes of the verdicts of retention modules, each with its human-readable message. A code never changes its meaning: journals,
//! metrics and dashboards depend on it. A message may be improved at any time.

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $message:literal;)*) => {
        $($(#[$doc])* pub const $name: &str = $code;)*

        /// All codes with their messages, sorted by code.
        pub const RETENTION: &[(&str, &str)] = &[$(($code, $message)),*];
    };
}

codes! {
    /// The storage version names API servers that are gone.
    API_SERVER_GONE = "APIServerGone", "the storage version names API servers that are gone";
    /// The API server must be verified to be gone.
    API_SERVER_UNKNOWN = "APIServerUnknown", "whether the API server is gone must be verified";
    /// The volume must be verified not to be attached.
    ATTACHMENT_UNKNOWN = "AttachmentUnknown", "whether the volume is attached must be verified";
    /// Nothing uses the VolumeAttributesClass any more.
    ATTRIBUTES_CLASS_UNUSED = "AttributesClassUnused", "nothing uses the VolumeAttributesClass any more";
    /// The VolumeAttributesClass must be verified to be unused by claims and volumes.
    ATTRIBUTES_CLASS_USE_UNKNOWN = "AttributesClassUseUnknown", "whether a claim or a volume uses the VolumeAttributesClass must be verified";
    /// The claim's condition Unused is out of date.
    CLAIM_CONDITION_OUTDATED = "ClaimConditionOutdated", "the claim's condition Unused is out of date";
    /// The volume's claim is gone and its reclaim policy is Delete.
    CLAIM_GONE = "ClaimGone", "the volume's claim is gone and its reclaim policy is Delete";
    /// The claim must be verified to exist.
    CLAIM_UNKNOWN = "ClaimUnknown", "whether the claim exists must be verified";
    /// Nothing uses the claim any more.
    CLAIM_UNUSED = "ClaimUnused", "nothing uses the claim any more";
    /// The claim must be verified to be unused by pods.
    CLAIM_USE_UNKNOWN = "ClaimUseUnknown", "whether a pod uses the claim must be verified";
    /// The CustomResourceDefinition is being deleted.
    DEFINITION_TERMINATING = "DefinitionTerminating", "the CustomResourceDefinition is being deleted";
    /// The deletion of an object is announced.
    DELETION_NOTICE = "DeletionNotice", "the deletion of the object is announced";
    /// The object is due by a policy.
    DUE_BY_POLICY = "DueByPolicy", "the object is due by a policy";
    /// The object has expired by its annotation.
    EXPIRED_BY_ANNOTATION = "ExpiredByAnnotation", "the object has expired by its annotation";
    /// The API server's identity lease has expired.
    IDENTITY_LEASE_EXPIRED = "IdentityLeaseExpired", "the API server's identity lease has expired";
    /// An annotation cannot be understood.
    INVALID_ANNOTATION = "InvalidAnnotation", "an annotation cannot be understood";
    /// The lease candidate has expired.
    LEASE_CANDIDATE_EXPIRED = "LeaseCandidateExpired", "the lease candidate has expired";
    /// The lease is no longer renewed.
    LEASE_NOT_RENEWED = "LeaseNotRenewed", "the lease is no longer renewed";
    /// The legacy token was invalidated and is still unused.
    LEGACY_TOKEN_EXPIRED = "LegacyTokenExpired", "the legacy token was invalidated and is still unused";
    /// The legacy token has not been used for the clean-up period and is invalidated.
    LEGACY_TOKEN_UNUSED = "LegacyTokenUnused", "the legacy token has not been used for the clean-up period and is invalidated";
    /// The node's machine does not exist.
    MACHINE_ABSENT = "MachineAbsent", "the node's machine does not exist";
    /// The node's machine runs again.
    MACHINE_RUNNING = "MachineRunning", "the node's machine runs again";
    /// The node's machine is shut down.
    MACHINE_SHUT_DOWN = "MachineShutDown", "the node's machine is shut down";
    /// The state of the node's machine is unknown.
    MACHINE_STATE_UNKNOWN = "MachineStateUnknown", "whether the node's machine exists is not known";
    /// The node's machine must be verified to exist.
    MACHINE_UNKNOWN = "MachineUnknown", "whether the node's machine exists must be verified";
    /// The volume's migration annotation is out of date.
    MIGRATION_ANNOTATION_OUTDATED = "MigrationAnnotationOutdated", "the volume's migration annotation is out of date";
    /// The namespace is being deleted.
    NAMESPACE_TERMINATING = "NamespaceTerminating", "the namespace is being deleted";
    /// The node could not be deleted.
    NODE_DELETION_FAILED = "NodeDeletionFailed", "the node could not be deleted";
    /// The pod's node does not exist.
    NODE_GONE = "NodeGone", "the pod's node does not exist";
    /// The node lease has neither an owner nor a node.
    NODE_LEASE_ORPHANED = "NodeLeaseOrphaned", "the node lease has neither an owner nor a node";
    /// The pod terminates on a node that is not ready and taken out of service.
    NODE_OUT_OF_SERVICE = "NodeOutOfService", "the pod terminates on a node that is not ready and taken out of service";
    /// The node is ready.
    NODE_READY = "NodeReady", "the node is ready";
    /// The node must be verified to exist.
    NODE_UNKNOWN = "NodeUnknown", "whether the node exists must be verified";
    /// The pod certificate request has served its time.
    POD_CERTIFICATE_REQUEST_EXPIRED = "PodCertificateRequestExpired", "the pod certificate request has served its time";
    /// The pod terminates and was never assigned to a node.
    POD_UNSCHEDULED = "PodUnscheduled", "the pod terminates and was never assigned to a node";
    /// The policy needs attention.
    POLICY_NEEDS_ATTENTION = "PolicyNeedsAttention", "the policy needs attention";
    /// The protection finalizer is missing.
    PROTECTION_MISSING = "ProtectionMissing", "the protection finalizer is missing";
    /// The certificate signing request has served its time.
    SIGNING_REQUEST_EXPIRED = "SigningRequestExpired", "the certificate signing request has served its time";
    /// The volume's storage has been deleted.
    STORAGE_DELETED = "StorageDeleted", "the volume's storage has been deleted";
    /// The volume's storage could not be deleted.
    STORAGE_DELETION_FAILED = "StorageDeletionFailed", "the volume's storage could not be deleted";
    /// More finished pods exist than the threshold allows, and the pod is among the oldest.
    TERMINATED_PODS_EXCEED_THRESHOLD = "TerminatedPodsExceedThreshold", "more finished pods exist than the threshold allows, and the pod is among the oldest";
    /// The token must be verified to be unused by pods.
    TOKEN_USE_UNKNOWN = "TokenUseUnknown", "whether a pod uses the token must be verified";
    /// The job's time to live after it finished is over.
    TTL_EXPIRED = "TTLExpired", "the job's time to live after it finished is over";
    /// The volume is bound.
    VOLUME_BOUND = "VolumeBound", "the volume is bound";
    /// The volume's finalizers do not match its reclaim policy and phase.
    VOLUME_FINALIZERS_OUTDATED = "VolumeFinalizersOutdated", "the volume's finalizers do not match its reclaim policy and phase";
    /// The volume cannot be reclaimed.
    VOLUME_RECLAIM_FAILED = "VolumeReclaimFailed", "the volume cannot be reclaimed";
    /// The volume's reclaim is reported.
    VOLUME_RECLAIM_REPORTED = "VolumeReclaimReported", "the volume's reclaim is reported";
    /// The volume is released.
    VOLUME_RELEASED = "VolumeReleased", "the volume is released";
    /// Nothing uses the volume any more.
    VOLUME_UNUSED = "VolumeUnused", "nothing uses the volume any more";
}

/// Codes of verdicts that depend on the time. They have no effect while the clocks of this machine and the API server disagree.
pub const TIMED: &[&str] = &[
    DUE_BY_POLICY,
    EXPIRED_BY_ANNOTATION,
    IDENTITY_LEASE_EXPIRED,
    LEASE_CANDIDATE_EXPIRED,
    LEASE_NOT_RENEWED,
    LEGACY_TOKEN_EXPIRED,
    LEGACY_TOKEN_UNUSED,
    NODE_LEASE_ORPHANED,
    POD_CERTIFICATE_REQUEST_EXPIRED,
    SIGNING_REQUEST_EXPIRED,
    TTL_EXPIRED,
];

/// Returns the message of a code; the code itself if it is not one of [`RETENTION`].
#[must_use]
pub fn message(code: &'static str) -> &'static str {
    RETENTION.iter().find(|(known, _)| *known == code).map_or(code, |(_, message)| message)
}

#[cfg(test)]
mod tests {
    use super::{RETENTION, TIMED};

    /// Codes for objects that expire, or have not been renewed or used for a time, must be among those that depend on the time.
    #[test]
    fn what_expires_depends_on_the_time() {
        let by_name = |code: &str| ["Expired", "NotRenewed", "Unused"].iter().any(|end| code.ends_with(end));
        let timed = |code: &str| TIMED.contains(&code);
        let forgotten: Vec<&str> =
            RETENTION.iter().map(|(code, _)| *code).filter(|code| by_name(code) && !timed(code)).collect();
        // An unreferenced object is unused at any time.
        assert_eq!(forgotten, ["AttributesClassUnused", "ClaimUnused", "VolumeUnused"]);
        assert!(TIMED.iter().all(|code| RETENTION.iter().any(|(known, _)| known == code)));
    }

    #[test]
    fn codes_are_sorted_unique_and_in_camel_case() {
        let folded = |code: &str| code.to_lowercase();
        assert!(RETENTION.windows(2).all(|pair| folded(pair[0].0) < folded(pair[1].0)));
        for (code, message) in RETENTION {
            assert!(code.starts_with(|c: char| c.is_ascii_uppercase()), "{code}");
            assert!(code.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{code}");
            assert!(!message.is_empty() && !message.ends_with('.'), "{code}");
        }
    }
}
