//! Cluster policies for the passes of an agent: the settings in force, and the results that others would have.

use std::collections::BTreeMap;

use anyhow::Result;
use gc_collectors::images::forecast::{Forecast, forecast};
use gc_collectors::images::plan::ImagePlan;
use gc_collectors::images::plan::Removal;
use gc_collectors::images::space::{Filesystem, Goal};
use gc_collectors::node_policies::ImageSettings;
use gc_collectors::node_policies::result::{NodeResult, State};
use gc_collectors::node_report::PolicyReport;
use gc_collectors::pressure::Signal;
use gc_types::Timestamp;
use tracing::debug;

use super::Agent;
use crate::clock::now;
use crate::config::NodeConfig;
use crate::images::{self, ImageMemory, ImageReport, Observation, Outcome};
use crate::policies::Policies;
use crate::stores::find_freed_space;

/// Maximum number of policies in a dry run whose result a node computes in one pass.
const MOST_REHEARSED: usize = 8;

/// Results of policies, as of the last pass.
#[derive(Default)]
pub(super) struct PolicyResults {
    by_policy: BTreeMap<String, NodeResult>,
    /// Removals of the last pass: their number, the bytes that became available, and the first names.
    removed: NodeResult,
}

impl PolicyResults {
    /// Records the removals of a pass.
    pub(super) fn removed(&mut self, report: &ImageReport) {
        let removed = report.removals.iter().filter(|(_, outcome)| *outcome == Outcome::Removed);
        let removed: Vec<Removal> = removed.map(|(removal, _)| removal.clone()).collect();
        self.removed.take(&removed);
        self.removed.bytes = report.freed_bytes;
    }

    /// Returns the results for the report of the node.
    pub(super) fn reported(&self) -> Vec<PolicyReport> {
        let of = |(policy, result): (&String, &NodeResult)| PolicyReport {
            policy: policy.clone(),
            result: result.clone(),
        };
        self.by_policy.iter().map(of).collect()
    }
}

impl NodeConfig {
    /// Returns the settings that policies may change.
    pub(crate) fn image_settings(&self) -> ImageSettings {
        ImageSettings {
            thresholds: self.thresholds,
            ages: self.ages,
            protection: self.protection.clone(),
            rules: self.rules.clone(),
        }
    }

    /// Returns this configuration with other settings of images.
    fn with(&self, settings: ImageSettings) -> Self {
        let image_loop = settings.has_loop();
        let ImageSettings { thresholds, ages, protection, rules } = settings;
        Self { thresholds, ages, image_loop, protection, rules, ..self.clone() }
    }
}

/// Returns the removals of a pass, cut off where the forecast ends, and their number.
pub(super) async fn forecast_pass(
    (client, memory, config): (&gc_cri::CriClient, &mut ImageMemory, &NodeConfig),
    observation: &Observation,
    plan: ImagePlan,
    measured: &[Filesystem],
    fired: &[(Signal, Goal)],
) -> Result<(Vec<Removal>, Forecast)> {
    // Images that are too old are removed in any case, except if only an eviction signal removes images.
    let certain = if config.image_loop { plan.by_age.len() } else { 0 };
    let mut removals: Vec<Removal> = plan.by_age.into_iter().chain(plan.by_space).collect();
    find_freed_space(client, memory, &mut removals).await;
    let goals = |after: &[Filesystem]| -> Result<Vec<Goal>> {
        let assessed = images::assess_all(after, config)?;
        let over = assessed.into_iter().filter_map(|(_, found)| found.goal);
        let over = over.filter(|_| config.image_loop);
        Ok(over.chain(fired.iter().map(|(_, goal)| goal.clone())).collect())
    };
    let found = forecast(&removals, certain, &observation.images, measured, goals)?;
    removals.truncate(found.most);
    Ok((removals, found))
}

impl Agent {
    /// Returns the time for windows and results, which tests may set ahead.
    fn policy_time(&self) -> Timestamp {
        let ahead = i64::try_from(self.clock.ahead().as_millis()).unwrap_or(i64::MAX);
        Timestamp(now().0 / 1_000_000).after(ahead)
    }

    /// Applies the settings of the policy in force, or the node's own.
    pub(super) async fn apply_policies(&mut self) {
        let now = self.policy_time();
        let Some(policies) = &mut self.policies else { return };
        policies.refresh().await;
        self.config = self.config.with(policies.settings(now));
    }

    /// Explains why nothing may be removed if the policies are unknown.
    pub(super) fn blind_to_policies(&self) -> Option<String> {
        let why = self.policies.as_ref().and_then(Policies::unknown)?;
        Some(format!("the policies for this node are not known yet, so that nothing is removed: {why}"))
    }

    /// Computes which images each policy in a dry run would remove, from the same observation as the pass that follows.
    pub(super) async fn rehearse_policies(&mut self, observation: &Observation) {
        let now = self.policy_time();
        self.results = PolicyResults::default();
        let Some(policies) = &self.policies else { return };
        let mut results = policies.blank_results(now);
        for (number, (name, settings)) in policies.dry_runs().into_iter().enumerate() {
            let found = match settings {
                _ if number >= MOST_REHEARSED => Err(format!(
                    "more than {MOST_REHEARSED} policies in a dry run select this node, and this one was left out"
                )),
                Ok(settings) => {
                    self.rehearse(observation, settings).await.map_err(|error| format!("{error:#}"))
                }
                Err(why) => Err(why),
            };
            let Some(result) = results.get_mut(&name) else { continue };
            match found {
                Ok((removals, found, kubelet)) => {
                    result.take(&removals);
                    if let Some(why) = found.uncertainty {
                        result.message = format!("between {} and {} images: {why}", found.fewest, found.most);
                    }
                    result.kubelet = kubelet;
                }
                Err(why) => {
                    result.state = State::Invalid;
                    result.message = why;
                }
            }
        }
        self.results.by_policy = results;
    }

    async fn rehearse(
        &mut self,
        observation: &Observation,
        settings: ImageSettings,
    ) -> Result<(Vec<Removal>, Forecast, String)> {
        let config = self.config.with(settings);
        let mut kubelet = Vec::new();
        if let Some(policies) = &self.policies {
            kubelet = (policies.check_kubelet)(&config);
        }
        let plan = self.plan_images_with(observation, &config)?;
        let measured = images::filesystems(&self.client).await?;
        let with = (&self.client, &mut self.memory, &config);
        let (removals, found) = forecast_pass(with, observation, plan, &measured, &[]).await?;
        Ok((removals, found, kubelet.join("; ")))
    }

    /// Completes the result of the policy in force, and writes all results.
    pub(super) async fn report_policies(&mut self, failure: Option<String>) {
        let now = self.policy_time();
        let Some(policies) = &mut self.policies else { return };
        if policies.unknown().is_some() {
            return;
        }
        // Either the pass failed before any policy was evaluated, or no policy selects this node.
        let has_none = self.results.by_policy.is_empty();
        if has_none {
            self.results.by_policy = policies.blank_results(now);
        }
        let PolicyResults { by_policy, removed } = &mut self.results;
        for result in by_policy.values_mut() {
            if result.state == State::Enforced {
                (result.images, result.bytes) = (removed.images, removed.bytes);
                result.first_images.clone_from(&removed.first_images);
                result.kubelet = (policies.check_kubelet)(&self.config).join("; ");
            }
            let is_in_doubt = result.state == State::Enforced || (has_none && result.state == State::DryRun);
            if let (Some(why), true) = (&failure, is_in_doubt) {
                result.message.clone_from(why);
            }
            result.bound();
        }
        debug!(policies = by_policy.len(), "results of policies");
        policies.report(by_policy, now).await;
    }
}
