//! Workloads of the cluster whose images are kept although none of their pods is on this node (spec `node-gc.md`, section 14.4).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::Result;
use gc_collectors::images::needs::{KEEP_IMAGES, Needs, Rest, need};
use gc_kube::ApiClient;
use gc_types::Timestamp;
use serde::Deserialize;
use serde_json::Value;
use tracing::{info, warn};

use crate::clock::now;
use crate::pods::{PAGE, PodSpec, each_page};

/// Time between two lists: every node makes these requests, and templates change rarely.
const PERIOD: Duration = Duration::from_mins(10);
/// Maximum number of references that are remembered.
const MAX_REFERENCES: usize = 100_000;

/// Kinds of workloads, each with the path of its list.
#[derive(Clone, Copy)]
enum Kind {
    Scaled(&'static str),
    OnEachNode(&'static str),
    Periodic(&'static str),
}

const KINDS: [Kind; 4] = [
    Kind::Scaled("/apis/apps/v1/deployments"),
    Kind::Scaled("/apis/apps/v1/statefulsets"),
    Kind::OnEachNode("/apis/apps/v1/daemonsets"),
    Kind::Periodic("/apis/batch/v1/cronjobs"),
];

/// Parsed parts of a workload, or of a namespace.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Workload {
    metadata: Metadata,
    spec: Spec,
    status: Status,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Metadata {
    name: String,
    namespace: String,
    annotations: BTreeMap<String, String>,
    managed_fields: Vec<FieldManager>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct FieldManager {
    time: Option<String>,
    #[serde(rename = "fieldsV1")]
    fields: Value,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Spec {
    replicas: Option<i64>,
    suspend: Option<bool>,
    template: Template,
    job_template: JobTemplate,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct Template {
    spec: PodSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobTemplate {
    spec: JobSpec,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct JobSpec {
    template: Template,
}

#[derive(Deserialize, Default)]
#[serde(default, rename_all = "camelCase")]
struct Status {
    last_schedule_time: Option<String>,
}

fn time(text: Option<&str>) -> Option<Timestamp> {
    Some(Timestamp(text?.parse::<jiff::Timestamp>().ok()?.as_millisecond()))
}

impl Workload {
    fn annotation(&self) -> Option<&str> {
        self.metadata.annotations.get(KEEP_IMAGES).map(String::as_str)
    }

    /// Returns the last time at which the number of replicas was set, as far as field managers show it.
    fn scaled(&self) -> Option<Timestamp> {
        let managers = self.metadata.managed_fields.iter();
        let of_replicas = managers.filter(|manager| !manager.fields["f:spec"]["f:replicas"].is_null());
        of_replicas.filter_map(|manager| time(manager.time.as_deref())).max()
    }

    fn rest(&self, kind: Kind) -> Rest {
        match kind {
            Kind::Scaled(_) if self.spec.replicas == Some(0) => Rest::ScaledToZero(self.scaled()),
            Kind::Scaled(_) | Kind::OnEachNode(_) => Rest::Never,
            Kind::Periodic(_) if self.spec.suspend == Some(true) => {
                Rest::Suspended(time(self.status.last_schedule_time.as_deref()))
            }
            Kind::Periodic(_) => Rest::BetweenRuns,
        }
    }

    fn template(&self, kind: Kind) -> &PodSpec {
        match kind {
            Kind::Periodic(_) => &self.spec.job_template.spec.template.spec,
            Kind::Scaled(_) | Kind::OnEachNode(_) => &self.spec.template.spec,
        }
    }
}

/// Knowledge about the workloads, as of the last answer.
pub(crate) struct Workloads {
    client: ApiClient,
    within: Duration,
    needs: Needs,
    asked: Option<Instant>,
    /// Reason why the workloads are not known; `None` once they were listed.
    unknown: Option<String>,
    /// Failure that was last logged.
    logged: Option<String>,
}

impl Workloads {
    pub(crate) fn new(client: ApiClient, within: Duration) -> Self {
        let unknown = Some("workloads were not asked for yet".to_owned());
        Self { client, within, needs: Needs::default(), asked: None, unknown, logged: None }
    }

    /// Returns the reason why the images that workloads will need are unknown, if they never were known.
    pub(crate) fn unknown(&self) -> Option<&str> {
        self.unknown.as_deref()
    }

    /// Lists the workloads again if the last list is too old. If this fails, the last answer counts.
    pub(crate) async fn needs(&mut self) -> &Needs {
        if self.asked.is_none_or(|asked| asked.elapsed() >= PERIOD) {
            match ask(&self.client, self.within).await {
                Ok(needs) => {
                    if self.needs != needs {
                        let (always, last) = (needs.always.len(), needs.last.len());
                        info!(always, last, "images are kept for workloads");
                    }
                    (self.needs, self.asked) = (needs, Some(Instant::now()));
                    (self.unknown, self.logged) = (None, None);
                }
                Err(error) => {
                    let why = format!("it is not known which images workloads will need: {error:#}");
                    if self.logged.as_ref() != Some(&why) {
                        warn!("{why}");
                    }
                    self.unknown = self.unknown.take().map(|_| why.clone());
                    self.logged = Some(why);
                }
            }
        }
        &self.needs
    }
}

async fn ask(client: &ApiClient, within: Duration) -> Result<Needs> {
    let (mut namespaces, mut needs) = (BTreeMap::new(), Needs::default());
    each_page(client, &format!("/api/v1/namespaces?limit={PAGE}"), |page: Vec<Workload>| {
        let annotated = page.into_iter().filter_map(|one| {
            let annotation = one.annotation()?.to_owned();
            Some((one.metadata.name, annotation))
        });
        namespaces.extend(annotated);
        Ok(())
    })
    .await?;
    let (now, within) = (Timestamp(now().0 / 1_000_000), gc_types::milliseconds(within));
    for kind in KINDS {
        let (Kind::Scaled(path) | Kind::OnEachNode(path) | Kind::Periodic(path)) = kind;
        each_page(client, &format!("{path}?limit={PAGE}"), |page: Vec<Workload>| {
            for workload in &page {
                let of_namespace = namespaces.get(&workload.metadata.namespace).map(String::as_str);
                let found = need(workload.annotation(), of_namespace, workload.rest(kind), now, within);
                if let Some(found) = found {
                    needs.add(found, workload.template(kind).images());
                }
            }
            let references = needs.always.len() + needs.last.len();
            anyhow::ensure!(references <= MAX_REFERENCES, "more than {MAX_REFERENCES} images");
            Ok(())
        })
        .await?;
    }
    Ok(needs)
}
