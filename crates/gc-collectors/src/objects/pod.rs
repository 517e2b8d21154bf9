//! Fields of a pod that verdicts use.

use std::sync::Arc;

use gc_types::Timestamp;
use serde::Deserialize;

use super::meta::{HasMeta, Meta, WireCondition, WireMeta, parse_time};

/// `status.phase`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// `Pending`
    Pending,
    /// `Running`
    Running,
    /// `Unknown`
    Unknown,
    /// `Succeeded`
    Succeeded,
    /// `Failed`
    Failed,
    /// Absent or unknown.
    Other,
}

impl Phase {
    fn read(text: &str) -> Self {
        match text {
            "Pending" => Self::Pending,
            "Running" => Self::Running,
            "Unknown" => Self::Unknown,
            "Succeeded" => Self::Succeeded,
            "Failed" => Self::Failed,
            _ => Self::Other,
        }
    }

    /// Reports whether a pod in this phase counts against the threshold.
    pub(crate) const fn finished(self) -> bool {
        !matches!(self, Self::Pending | Self::Running | Self::Unknown)
    }
}

/// Use of a claim by a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimUse {
    /// Name of the claim.
    pub claim: Arc<str>,
    /// True if it belongs to a generic ephemeral volume.
    pub ephemeral: bool,
}

/// Fields of a pod that verdicts use.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "WirePod")]
pub struct Pod {
    /// Metadata of the pod.
    pub meta: Meta,
    /// `metadata.generation`
    pub generation: i64,
    /// True if its deletion was requested without grace period, or its grace period is over.
    pub without_grace: bool,
    /// `spec.nodeName`, if it has one.
    pub node: Option<Arc<str>>,
    /// `status.phase`
    pub phase: Phase,
    /// True if `status.reason` is `Evicted`.
    pub evicted: bool,
    /// Time at which it finished, if its phase says that it did (BEAT-POD-5): the end of its last container, or else the last
    /// change of a condition, or else its creation.
    pub finished: Option<Timestamp>,
    /// Time since which `DisruptionTarget` has been `True`, if it is.
    pub disrupted_since: Option<Timestamp>,
    /// Claims that its volumes name.
    pub claims: Box<[ClaimUse]>,
    /// True if none of its containers runs, according to their statuses.
    pub idle: bool,
}

impl HasMeta for Pod {
    fn meta(&self) -> &Meta {
        &self.meta
    }
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePod {
    metadata: WireMeta,
    spec: WirePodSpec,
    status: WirePodStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WirePodSpec {
    node_name: Option<String>,
    volumes: Option<Vec<WireVolume>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireVolume {
    name: String,
    persistent_volume_claim: Option<WireClaimSource>,
    ephemeral: Option<serde::de::IgnoredAny>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireClaimSource {
    claim_name: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WirePodStatus {
    phase: String,
    reason: String,
    conditions: Option<Vec<WireCondition>>,
    #[serde(rename = "containerStatuses")]
    containers: Option<Vec<WireContainer>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContainer {
    state: WireContainerState,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct WireContainerState {
    running: Option<serde::de::IgnoredAny>,
    terminated: Option<WireTerminated>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct WireTerminated {
    finished_at: Option<String>,
}

impl WirePodStatus {
    fn finished(&self, phase: Phase, created: Option<Timestamp>) -> Option<Timestamp> {
        if !matches!(phase, Phase::Succeeded | Phase::Failed) {
            return None;
        }
        let ended =
            self.containers.iter().flatten().filter_map(|container| {
                parse_time(container.state.terminated.as_ref()?.finished_at.as_deref())
            });
        let changed = self.conditions.iter().flatten();
        let changed = changed.filter_map(|condition| parse_time(condition.last_transition_time.as_deref()));
        ended.max().or_else(|| changed.max()).or(created)
    }
}

impl From<WirePod> for Pod {
    fn from(wire: WirePod) -> Self {
        let phase = Phase::read(&wire.status.phase);
        let disrupted =
            |condition: &&WireCondition| condition.r#type == "DisruptionTarget" && condition.status == "True";
        let meta = Meta::from(&wire.metadata);
        let claims = wire.spec.volumes.iter().flatten().filter_map(|volume| {
            if let Some(source) = &volume.persistent_volume_claim {
                return Some(ClaimUse { claim: source.claim_name.as_str().into(), ephemeral: false });
            }
            volume.ephemeral?;
            Some(ClaimUse { claim: format!("{}-{}", meta.name, volume.name).into(), ephemeral: true })
        });
        Self {
            claims: claims.collect(),
            idle: wire.status.containers.iter().flatten().all(|container| container.state.running.is_none()),
            generation: wire.metadata.generation,
            without_grace: wire.metadata.deletion_grace_period_seconds == Some(0),
            node: wire.spec.node_name.filter(|name| !name.is_empty()).map(Into::into),
            phase,
            finished: wire.status.finished(phase, meta.created),
            evicted: phase == Phase::Failed && wire.status.reason == "Evicted",
            disrupted_since: wire
                .status
                .conditions
                .iter()
                .flatten()
                .find(disrupted)
                .and_then(|condition| parse_time(condition.last_transition_time.as_deref())),
            meta,
        }
    }
}
