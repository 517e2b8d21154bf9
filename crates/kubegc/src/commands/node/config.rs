//! The settings of the node agent: a `KubeletConfiguration` file, overridden by the kubelet's flags (spec `node-gc.md`,
//! section 15).

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use gc_collectors::containers::plan::ContainerPolicy;
use gc_collectors::images::patterns::ImagePatterns;
use gc_collectors::images::plan::AgePolicy;
use gc_collectors::images::rules::{KeepRule, ReferenceRules};
use gc_collectors::images::space::Thresholds;
use gc_collectors::pressure::{self, EvictionSettings, Threshold};
use gc_cri::{Endpoint, ManagedLabel};
use gc_node::{ALWAYS_PROTECTED_IMAGES, CheckpointPolicy, NodeConfig};
use gc_types::GoDuration;
use serde_json::Value;

use super::places;

/// Directory in which the kubelet links container logs; the kubelet has no setting for it.
const CONTAINER_LOG_LINKS_DIRECTORY: &str = "/var/log/containers";
/// Maximum number of fields that a notice names of those that concern other parts of the kubelet; the agent ignores them.
const MAX_NAMED_FIELDS: usize = 8;

/// The feature gate of `imageMaximumGCAge`.
const IMAGE_AGE_GATE: &str = "ImageMaximumGCAge";

/// Headings in the help text.
const HEADING_IMAGES: &str = "Images";
const HEADING_CONTAINERS: &str = "Containers and logs";

/// The kubelet's flags that concern collection, and the agent's own.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct NodeFlags {
    /// Configuration file (KubeletConfiguration, kubelet.config.k8s.io/v1beta1); flags override it
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Socket of the container runtime [default: the first well-known one that exists]
    #[arg(long, value_name = "unix://PATH")]
    pub container_runtime_endpoint: Option<String>,
    /// Timeout of each call to the runtime [default: 2m0s]
    #[arg(long, value_name = "DURATION")]
    pub runtime_request_timeout: Option<String>,
    /// Percentage of disk use at which image collection starts [default: 85]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "PERCENT", allow_negative_numbers = true)]
    pub image_gc_high_threshold: Option<i64>,
    /// Percentage of disk use at which image collection stops [default: 80]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "PERCENT", allow_negative_numbers = true)]
    pub image_gc_low_threshold: Option<i64>,
    /// Minimum age of an image before it is removed [default: 2m0s]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "DURATION", allow_hyphen_values = true)]
    pub minimum_image_ttl_duration: Option<String>,
    /// Remove images unused for longer than this, whatever the disk use; 0s means off [default: 0s]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "DURATION", allow_hyphen_values = true)]
    pub maximum_image_unused_duration: Option<String>,
    /// Minimum age of a dead container before it is removed, counted from creation [default: 0s]
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "DURATION", allow_hyphen_values = true)]
    pub minimum_container_ttl_duration: Option<String>,
    /// Maximum number of dead containers per pod and container name; negative means no limit [default: 1]
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "COUNT", allow_negative_numbers = true)]
    pub maximum_dead_containers_per_container: Option<i64>,
    /// Maximum number of dead containers on the node; negative means no limit [default: -1]
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "COUNT", allow_negative_numbers = true)]
    pub maximum_dead_containers: Option<i64>,
    /// Apply limits even to the newest dead container of a live pod (the kubelet may run it again)
    #[arg(long, help_heading = HEADING_CONTAINERS)]
    pub unsafe_remove_newest_of_live_pods: bool,
    /// Keep images that match a tag, a repository, a digest, an ID, or a pattern with * (repeatable)
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "PATTERN")]
    pub protect_image: Vec<String>,
    /// Keep the images of all pods in this namespace (repeatable)
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "NAMESPACE")]
    pub protect_namespace: Vec<String>,
    /// Keep images of CronJobs, and of workloads that were scaled to zero within this time, until all others are gone, and obey kubegc.io/keep-images; needs a cluster; 0s means off [default: 0s]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "DURATION", allow_hyphen_values = true)]
    pub keep_workload_images: Option<String>,
    /// How images that match a pattern are kept while nothing uses them: always, last (for space only, after all others) or never (like any other, also if a workload will need them); the first match counts (repeatable)
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "PATTERN=HOW")]
    pub keep_image: Vec<String>,
    /// Keep images of which no other node has a copy, as the peer-to-peer mirrors (Spegel) at all addresses of this host say, one of each node; such as spegel-bootstrap.spegel.svc:5000 (repeatable)
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "HOST:PORT")]
    pub peer_mirror: Vec<String>,
    /// Also collect sandboxes and containers with this label that the kubelet did not create
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "KEY[=VALUE]")]
    pub managed_label: Option<String>,
    /// Eviction thresholds, such as imagefs.available<15%,nodefs.available<10% [default: the kubelet's]
    #[arg(long, help_heading = HEADING_IMAGES, value_name = "SIGNAL<LIMIT,…")]
    pub eviction_hard: Option<String>,
    /// Count the ages of images from each start, as the kubelet does
    #[arg(long, help_heading = HEADING_IMAGES)]
    pub forget_ages: bool,
    /// Directory of pod logs [default: /var/log/pods]
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "DIR")]
    pub pod_logs_dir: Option<PathBuf>,
    /// Directory of the kubelet's links to container logs [default: /var/log/containers]
    #[arg(long, help_heading = HEADING_CONTAINERS, value_name = "DIR")]
    pub container_log_links_dir: Option<PathBuf>,
    /// Maximum number of images to remove at once (containers: at most 8)
    #[arg(long, value_name = "COUNT", default_value_t = 32, value_parser = clap::value_parser!(u16).range(1..=64))]
    pub parallel_removals: u16,
}

/// Settings of the agent and its connections, resolved from the file and the flags.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    /// Socket of the container runtime.
    pub endpoint: Option<Endpoint>,
    /// Timeout of each call to the runtime.
    pub request_timeout: Duration,
    /// Label by which objects that the kubelet did not create opt in.
    pub managed_label: Option<ManagedLabel>,
    /// Namespaces whose pods keep their images.
    pub protected_namespaces: Vec<String>,
    /// Time for which workloads that were scaled to zero keep their images; `None` if workloads keep none.
    pub workload_images: Option<Duration>,
    /// Configuration of the agent.
    pub node: NodeConfig,
}

/// All errors of a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid configuration: {}", list(.0))]
pub(super) struct ConfigErrors(pub Vec<String>);

fn list(errors: &[String]) -> String {
    match errors {
        [one] => one.clone(),
        many => format!("[{}]", many.join(", ")),
    }
}

/// Reads fields of the file, and collects the errors.
struct Reader<'a> {
    file: &'a Value,
    errors: Vec<String>,
}

impl Reader<'_> {
    fn field<T>(&mut self, name: &str, expected: &str, read: impl Fn(&Value) -> Option<T>) -> Option<T> {
        let value = self.file.get(name).filter(|value| !value.is_null())?;
        let found = read(value);
        if found.is_none() {
            self.errors.push(format!("{name}: expected {expected}, found {}", describe(value)));
        }
        found
    }

    fn integer(&mut self, name: &str) -> Option<i64> {
        self.field(name, "an integer", Value::as_i64)
    }

    fn text(&mut self, name: &str) -> Option<String> {
        self.field(name, "a string", |value| value.as_str().map(String::from))
    }

    fn boolean(&mut self, name: &str) -> Option<bool> {
        self.field(name, "true or false", Value::as_bool)
    }

    /// Reads a map of strings. Reports each wrong value by its key.
    fn map(&mut self, name: &str) -> Option<BTreeMap<String, String>> {
        let object = self.field(name, "a map of strings to strings", |value| value.as_object().cloned())?;
        let mut map = BTreeMap::new();
        for (key, value) in object {
            match value {
                Value::String(text) => {
                    map.insert(key, text);
                }
                other => {
                    self.errors.push(format!("{name}[{key}]: expected a string, found {}", describe(&other)));
                }
            }
        }
        Some(map)
    }

    /// Reads a duration. Zero takes the default, because a file cannot distinguish an explicit zero from a missing field.
    fn duration(&mut self, name: &str, default: GoDuration) -> GoDuration {
        let text = self.field(name, "a duration in a string, such as \"2m0s\"", |value| {
            value.as_str().map(String::from)
        });
        match text.map(|text| text.parse::<GoDuration>()) {
            Some(Ok(duration)) if duration != GoDuration::ZERO => duration,
            Some(Err(error)) => {
                self.errors.push(format!("{name}: {error}"));
                default
            }
            Some(Ok(_)) | None => default,
        }
    }

    /// Parses a flag's duration, which overrides the file's.
    fn flag_duration(&mut self, flag: &str, text: Option<&String>, or: GoDuration) -> GoDuration {
        let Some(text) = text else { return or };
        text.parse().unwrap_or_else(|error| {
            self.errors.push(format!("--{flag}: {error}"));
            or
        })
    }
}

fn describe(value: &Value) -> String {
    match value {
        Value::Null => "nothing".into(),
        Value::Bool(value) => format!("the boolean {value}"),
        Value::Number(value) => format!("the number {value}"),
        Value::String(value) => format!("the string {value:?}"),
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
    }
}

/// Fields that this agent reads.
pub(super) const READ: [&str; 19] = [
    "apiVersion",
    "kind",
    "imageGCHighThresholdPercent",
    "imageGCLowThresholdPercent",
    "imageMinimumGCAge",
    "imageMaximumGCAge",
    "containerRuntimeEndpoint",
    "imageServiceEndpoint",
    "runtimeRequestTimeout",
    "podLogsDir",
    "containerLogMaxFiles",
    "containerLogMaxWorkers",
    "containerLogMonitorInterval",
    "evictionHard",
    "evictionSoft",
    "evictionSoftGracePeriod",
    "evictionMinimumReclaim",
    "mergeDefaultEvictionSettings",
    "featureGates",
];

/// Combines file and flags. `file` is the parsed document, or null without one. Also returns notices about fields in the file that
/// concern other parts of the kubelet.
pub(super) fn resolve(file: &Value, flags: &NodeFlags) -> Result<(Settings, Vec<String>), ConfigErrors> {
    let mut reader = Reader { file, errors: Vec::new() };
    check_header(&mut reader);
    let mut notices = notices(file);
    let (thresholds, ages) = image_settings(&mut reader, flags, &mut notices);
    let containers = container_settings(&mut reader, flags, &mut notices);
    let endpoint = endpoint(&mut reader, flags);
    let eviction = eviction(&mut reader, flags, &mut notices);
    let pod_logs_dir = pod_logs_dir(&mut reader, flags);
    check_log_settings(&mut reader);
    let two_minutes = GoDuration::from_seconds(120);
    let timeout = reader.duration("runtimeRequestTimeout", two_minutes);
    let timeout =
        reader.flag_duration("runtime-request-timeout", flags.runtime_request_timeout.as_ref(), timeout);
    if timeout <= GoDuration::ZERO {
        reader.errors.push(format!(
            "runtimeRequestTimeout (--runtime-request-timeout) {timeout} must be greater than 0s"
        ));
    }
    let workload_images =
        reader.flag_duration("keep-workload-images", flags.keep_workload_images.as_ref(), GoDuration::ZERO);
    if workload_images < GoDuration::ZERO {
        reader.errors.push(format!("--keep-workload-images {workload_images} must not be negative"));
    }
    let patterns = ALWAYS_PROTECTED_IMAGES.into_iter().chain(flags.protect_image.iter().map(String::as_str));
    let protection = ImagePatterns::new(patterns).unwrap_or_else(|error| {
        reader.errors.push(format!("--protect-image: {error}"));
        ImagePatterns::default()
    });
    let keep = flags.keep_image.iter().filter_map(|text| {
        let rule = text.parse::<KeepRule>();
        rule.map_err(|error| reader.errors.push(format!("--keep-image: {error}"))).ok()
    });
    let rules = ReferenceRules { keep: keep.collect(), ..ReferenceRules::default() };
    for host in &flags.peer_mirror {
        let port = host.rsplit_once(':').filter(|(name, _)| !name.is_empty() && !name.contains('/'));
        if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
            reader.errors.push(format!("--peer-mirror {host:?}: expected HOST:PORT"));
        }
    }
    let managed_label = flags.managed_label.as_ref().and_then(|text| {
        let label = ManagedLabel::parse(text);
        if label.is_none() {
            reader.errors.push(format!("--managed-label {text:?}: expected KEY or KEY=VALUE"));
        }
        label
    });
    if !reader.errors.is_empty() {
        return Err(ConfigErrors(reader.errors));
    }
    let node = NodeConfig {
        thresholds,
        image_loop: thresholds.high_percent < 100 || ages.maximum_age.is_some(),
        ages,
        containers,
        eviction,
        forget_ages: flags.forget_ages,
        pod_logs_dir,
        container_log_links_dir: flags
            .container_log_links_dir
            .clone()
            .unwrap_or_else(|| CONTAINER_LOG_LINKS_DIRECTORY.into()),
        protection,
        rules,
        below_cri: false,
        below_cri_minimum_age: GoDuration::ZERO,
        checkpoints: CheckpointPolicy::default(),
        parallel_removals: usize::from(flags.parallel_removals.max(1)),
    };
    let settings = Settings {
        endpoint,
        request_timeout: timeout.to_std(),
        managed_label,
        protected_namespaces: flags.protect_namespace.clone(),
        workload_images: (workload_images > GoDuration::ZERO).then(|| workload_images.to_std()),
        node,
    };
    Ok((settings, notices))
}

fn check_header(reader: &mut Reader<'_>) {
    if reader.file.is_null() {
        return;
    }
    if !reader.file.is_object() {
        reader.errors.push(format!("the file: expected an object, found {}", describe(reader.file)));
        return;
    }
    for (field, expected) in
        [("apiVersion", "kubelet.config.k8s.io/v1beta1"), ("kind", "KubeletConfiguration")]
    {
        let found = reader.file.get(field).and_then(Value::as_str);
        if found != Some(expected) {
            reader.errors.push(format!(
                "{field}: expected {expected:?}, found {}",
                found.map_or("nothing".into(), |f| format!("{f:?}"))
            ));
        }
    }
}

fn notices(file: &Value) -> Vec<String> {
    let names = file.as_object().into_iter().flatten().map(|(name, _)| name.as_str());
    let other: Vec<&str> = names.filter(|name| !READ.contains(name)).collect();
    if other.is_empty() {
        return Vec::new();
    }
    vec![format!(
        "the configuration file has fields that do not concern collection, which are ignored: {}",
        named(&other)
    )]
}

/// Lists the first of some names, and the number of the others.
fn named(names: &[&str]) -> String {
    let first = names.iter().take(MAX_NAMED_FIELDS).copied().collect::<Vec<_>>().join(", ");
    match names.len().saturating_sub(MAX_NAMED_FIELDS) {
        0 => first,
        more => format!("{first} and {more} more"),
    }
}

fn image_settings(
    reader: &mut Reader<'_>,
    flags: &NodeFlags,
    notices: &mut Vec<String>,
) -> (Thresholds, AgePolicy) {
    let high = flags.image_gc_high_threshold.or(reader.integer("imageGCHighThresholdPercent")).unwrap_or(85);
    let low = flags.image_gc_low_threshold.or(reader.integer("imageGCLowThresholdPercent")).unwrap_or(80);
    for (field, flag, value) in [
        ("imageGCHighThresholdPercent", "image-gc-high-threshold", high),
        ("imageGCLowThresholdPercent", "image-gc-low-threshold", low),
    ] {
        if !(0..=100).contains(&value) {
            reader.errors.push(format!("{field} (--{flag}) {value} must be between 0 and 100, inclusive"));
        }
    }
    if low >= high {
        reader.errors.push(format!(
            "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
        ));
    }
    let written = reader.file.get("imageMinimumGCAge").and_then(Value::as_str);
    if written.is_some_and(|text| text.parse() == Ok(GoDuration::ZERO)) {
        notices.push(
            "imageMinimumGCAge: 0s in a file means the default of 2m0s, as in the kubelet; for none, use \
             --minimum-image-ttl-duration 0s"
                .into(),
        );
    }
    let minimum = reader.duration("imageMinimumGCAge", GoDuration::from_seconds(120));
    let minimum = reader.flag_duration(
        "minimum-image-ttl-duration",
        flags.minimum_image_ttl_duration.as_ref(),
        minimum,
    );
    let maximum = reader.duration("imageMaximumGCAge", GoDuration::ZERO);
    let maximum = reader.flag_duration(
        "maximum-image-unused-duration",
        flags.maximum_image_unused_duration.as_ref(),
        maximum,
    );
    for (field, value) in [("imageMinimumGCAge", minimum), ("imageMaximumGCAge", maximum)] {
        if value < GoDuration::ZERO {
            reader.errors.push(format!("{field} {value} must not be negative"));
        }
    }
    if maximum > GoDuration::ZERO && maximum <= minimum {
        reader
            .errors
            .push(format!("imageMaximumGCAge {maximum} must be greater than imageMinimumGCAge {minimum}"));
    }
    let is_off = !gate_is_on(reader, notices);
    if is_off && maximum > GoDuration::ZERO {
        notices.push("imageMaximumGCAge has no effect: featureGates has ImageMaximumGCAge: false".into());
    }
    let percent = |value: i64| u8::try_from(value.clamp(0, 100)).unwrap_or(100);
    (
        Thresholds { high_percent: percent(high), low_percent: percent(low) },
        AgePolicy {
            minimum_age: minimum,
            maximum_age: (maximum > GoDuration::ZERO && !is_off).then_some(maximum),
        },
    )
}

/// Reports whether the feature gate that concerns collection is on. Checks all gates, as far as it can without knowing them.
fn gate_is_on(reader: &mut Reader<'_>, notices: &mut Vec<String>) -> bool {
    let gates =
        reader.field("featureGates", "a map of gates to true or false", |value| value.as_object().cloned());
    let (mut is_on, mut others) = (true, Vec::new());
    for (name, value) in gates.into_iter().flatten() {
        let Some(on) = value.as_bool() else {
            let found = describe(&value);
            reader.errors.push(format!("featureGates[{name}]: expected true or false, found {found}"));
            continue;
        };
        if name == IMAGE_AGE_GATE {
            is_on = on;
        } else if places::is_misspelling(&name, IMAGE_AGE_GATE) {
            let error = format!("featureGates[{name}]: unknown gate; did you mean {IMAGE_AGE_GATE:?}?");
            reader.errors.push(error);
        } else {
            others.push(name);
        }
    }
    if !others.is_empty() {
        let names: Vec<&str> = others.iter().map(String::as_str).collect();
        notices.push(format!(
            "featureGates has gates that do not concern collection, which are ignored: {}",
            named(&names)
        ));
    }
    is_on
}

fn container_settings(
    reader: &mut Reader<'_>,
    flags: &NodeFlags,
    notices: &mut Vec<String>,
) -> ContainerPolicy {
    let text = flags.minimum_container_ttl_duration.as_ref();
    let minimum_age = reader.flag_duration("minimum-container-ttl-duration", text, GoDuration::ZERO);
    if minimum_age < GoDuration::ZERO {
        reader.errors.push(format!("--minimum-container-ttl-duration: invalid minimum garbage collection age {minimum_age}; must not be negative"));
    }
    let limit = |value: i64| u32::try_from(value).ok();
    let per_container = flags.maximum_dead_containers_per_container.unwrap_or(1);
    if per_container == 0 && !flags.unsafe_remove_newest_of_live_pods {
        notices.push(
            "--maximum-dead-containers-per-container 0 removes also the newest dead container of each name in a live pod, as in \
             the kubelet, which reads restart counts and exit codes from it; with 1, it stays"
                .into(),
        );
    }
    ContainerPolicy {
        minimum_age,
        maximum_per_pod_container: limit(per_container),
        maximum_containers: limit(flags.maximum_dead_containers.unwrap_or(-1)),
        keep_newest_of_live_pods: !flags.unsafe_remove_newest_of_live_pods && per_container != 0,
    }
}

fn endpoint(reader: &mut Reader<'_>, flags: &NodeFlags) -> Option<Endpoint> {
    let runtime = flags.container_runtime_endpoint.clone().or(reader.text("containerRuntimeEndpoint"));
    let images = reader.text("imageServiceEndpoint").filter(|text| !text.is_empty());
    if images.is_some() && images != runtime {
        reader.errors.push(
            "imageServiceEndpoint: an image service apart from the container runtime is not supported; expected the same endpoint".into(),
        );
    }
    match Endpoint::parse(&runtime?) {
        Ok(endpoint) => Some(endpoint),
        Err(error) => {
            reader.errors.push(format!("containerRuntimeEndpoint (--container-runtime-endpoint): {error}"));
            None
        }
    }
}

fn eviction(reader: &mut Reader<'_>, flags: &NodeFlags, notices: &mut Vec<String>) -> Vec<Threshold> {
    let mut settings = EvictionSettings {
        hard: reader.map("evictionHard"),
        soft: reader.map("evictionSoft").unwrap_or_default(),
        soft_grace_period: reader.map("evictionSoftGracePeriod").unwrap_or_default(),
        minimum_reclaim: reader.map("evictionMinimumReclaim").unwrap_or_default(),
        merge_defaults: reader.boolean("mergeDefaultEvictionSettings").unwrap_or(false),
    };
    if let Some(text) = &flags.eviction_hard {
        let mut hard = BTreeMap::new();
        for part in text.split(',').filter(|part| !part.is_empty()) {
            match part.split_once('<') {
                Some((signal, limit)) => {
                    hard.insert(signal.to_owned(), limit.to_owned());
                }
                None => reader.errors.push(format!("--eviction-hard {part:?}: expected SIGNAL<LIMIT")),
            }
        }
        settings.hard = Some(hard);
    }
    for ignored in settings.ignored() {
        notices.push(format!("{ignored} is ignored: writable layers follow the filesystem that they lie on"));
    }
    pressure::parse(&settings).unwrap_or_else(|errors| {
        reader.errors.extend(errors);
        Vec::new()
    })
}

fn pod_logs_dir(reader: &mut Reader<'_>, flags: &NodeFlags) -> PathBuf {
    let from_flag = flags.pod_logs_dir.as_ref().map(|path| path.to_string_lossy().into_owned());
    let text = from_flag.or(reader.text("podLogsDir")).unwrap_or_else(|| "/var/log/pods".into());
    let normal = !text.split('/').skip(1).any(|part| matches!(part, "" | "." | ".."));
    if !text.starts_with('/') || !normal || !text.is_ascii() {
        reader
            .errors
            .push(format!("podLogsDir {text:?} must be an absolute, normalised path of ASCII characters"));
    }
    text.into()
}

/// Checks settings that this agent ignores, but that a kubelet would refuse.
fn check_log_settings(reader: &mut Reader<'_>) {
    if let Some(files) = reader.integer("containerLogMaxFiles").filter(|files| *files <= 1) {
        reader
            .errors
            .push(format!("containerLogMaxFiles (--container-log-max-files) {files} must be greater than 1"));
    }
    if let Some(workers) = reader.integer("containerLogMaxWorkers").filter(|workers| *workers < 1) {
        reader.errors.push(format!("containerLogMaxWorkers {workers} must be at least 1"));
    }
    let three_seconds = GoDuration::from_seconds(3);
    let interval = reader.duration("containerLogMonitorInterval", GoDuration::from_seconds(10));
    if interval < three_seconds {
        reader
            .errors
            .push(format!("containerLogMonitorInterval {interval} must be at least {three_seconds}"));
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn file(fields: &Value) -> Value {
        let mut file = json!({"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration"});
        file.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        file
    }

    fn errors(fields: &Value, flags: &NodeFlags) -> Vec<String> {
        resolve(&file(fields), flags).err().map(|errors| errors.0).unwrap_or_default()
    }

    /// T159 and T160.
    #[test]
    fn defaults_are_the_kubelets() {
        for document in [Value::Null, file(&json!({})), file(&json!({"imageMinimumGCAge": "0h0m0s"}))] {
            let (Settings { node: config, .. }, notices) = resolve(&document, &NodeFlags::default()).unwrap();
            assert_eq!(config.thresholds, Thresholds { high_percent: 85, low_percent: 80 });
            assert_eq!(
                config.ages,
                AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None }
            );
            assert_eq!(config.containers, ContainerPolicy::default());
            assert_eq!((config.eviction.len(), config.pod_logs_dir), (4, "/var/log/pods".into()));
            let explained = document.get("imageMinimumGCAge").is_some();
            assert_eq!((notices.len(), config.image_loop), (usize::from(explained), true), "{notices:?}");
        }
        let flags = NodeFlags { minimum_image_ttl_duration: Some("0".into()), ..NodeFlags::default() };
        assert_eq!(resolve(&Value::Null, &flags).unwrap().0.node.ages.minimum_age, GoDuration::ZERO);
    }

    /// T154, T155, T157 and T158: the error names each wrong value, and what was expected.
    #[test]
    fn wrong_values_are_refused() {
        let low_less = |low, high| {
            format!(
                "imageGCLowThresholdPercent (--image-gc-low-threshold) {low} must be less than imageGCHighThresholdPercent (--image-gc-high-threshold) {high}"
            )
        };
        for (fields, expected) in [
            (json!({"imageGCHighThresholdPercent": 101}), "imageGCHighThresholdPercent (--image-gc-high-threshold) 101 must be between 0 and 100, inclusive".into()),
            (json!({"imageGCLowThresholdPercent": -1}), "imageGCLowThresholdPercent (--image-gc-low-threshold) -1 must be between 0 and 100, inclusive".into()),
            (json!({"imageGCHighThresholdPercent": 0, "imageGCLowThresholdPercent": 0}), low_less(0, 0)),
            (json!({"imageGCHighThresholdPercent": 0, "imageGCLowThresholdPercent": 1}), low_less(1, 0)),
            (json!({"imageMinimumGCAge": "-1ns"}), "imageMinimumGCAge -1ns must not be negative".into()),
            (json!({"imageMaximumGCAge": "-1ns"}), "imageMaximumGCAge -1ns must not be negative".into()),
            (json!({"imageMaximumGCAge": "1ns", "imageMinimumGCAge": "2ns"}), "imageMaximumGCAge 1ns must be greater than imageMinimumGCAge 2ns".into()),
            (json!({"imageMaximumGCAge": "2m"}), "imageMaximumGCAge 2m0s must be greater than imageMinimumGCAge 2m0s".into()),
            (json!({"imageMinimumGCAge": 120}), "imageMinimumGCAge: expected a duration in a string, such as \"2m0s\", found the number 120".into()),
            (json!({"imageMinimumGCAge": "1d"}), "imageMinimumGCAge: \"1d\" has the unknown unit \"d\"; expected one of ns, us, ms, s, m, h".into()),
            (json!({"imageGCHighThresholdPercent": "85"}), "imageGCHighThresholdPercent: expected an integer, found the string \"85\"".into()),
            (json!({"evictionHard": {"imagefs.available": 15}}), "evictionHard[imagefs.available]: expected a string, found the number 15".into()),
            (json!({"evictionHard": "15%"}), "evictionHard: expected a map of strings to strings, found the string \"15%\"".into()),
            (json!({"podLogsDir": "logs"}), "podLogsDir \"logs\" must be an absolute, normalised path of ASCII characters".into()),
            (json!({"podLogsDir": "/var/../log"}), "podLogsDir \"/var/../log\" must be an absolute, normalised path of ASCII characters".into()),
            (json!({"containerLogMonitorInterval": "2s"}), "containerLogMonitorInterval 2s must be at least 3s".into()),
            (json!({"featureGates": {"ImageMaximumGCAge": "false"}}), "featureGates[ImageMaximumGCAge]: expected true or false, found the string \"false\"".into()),
            (json!({"featureGates": {"ImageMaximumGcAges": false}}), "featureGates[ImageMaximumGcAges]: unknown gate; did you mean \"ImageMaximumGCAge\"?".into()),
            (json!({"featureGates": {"SomethingElse": 1}}), "featureGates[SomethingElse]: expected true or false, found the number 1".into()),
            (json!({"featureGates": true}), "featureGates: expected a map of gates to true or false, found the boolean true".into()),
            (json!({"kind": "Pod"}), "kind: expected \"KubeletConfiguration\", found \"Pod\"".into()),
            (json!({"containerRuntimeEndpoint": "npipe:////./pipe/x"}), "containerRuntimeEndpoint (--container-runtime-endpoint): container runtime endpoint \"npipe:////./pipe/x\": scheme \"npipe\" is not supported; expected unix:///path/to/socket".into()),
        ] {
            assert_eq!(errors(&fields, &NodeFlags::default()), [expected], "{fields}");
        }
    }

    /// T161 and T162.
    #[test]
    fn all_errors_are_reported_at_once() {
        let flags = NodeFlags {
            minimum_container_ttl_duration: Some("-1s".into()),
            protect_image: vec![String::new()],
            keep_image: vec!["nginx=often".into(), "nginx=last".into()],
            peer_mirror: vec!["spegel:5000".into(), "http://spegel:5000".into(), "spegel".into()],
            ..NodeFlags::default()
        };
        let found = errors(&json!({"imageGCHighThresholdPercent": 300}), &flags);
        assert_eq!(found.len(), 6, "{found:?}");
        let text = ConfigErrors(found).to_string();
        assert!(text.starts_with("invalid configuration: [") && text.ends_with(']'), "{text}");
    }

    #[test]
    fn flags_win_over_the_file_and_other_fields_are_noticed() {
        let flags = NodeFlags { image_gc_high_threshold: Some(100), ..NodeFlags::default() };
        let document =
            file(&json!({"imageGCHighThresholdPercent": 90, "clusterDNS": ["10.0.0.10"], "maxPods": 5}));
        let (Settings { node: config, .. }, notices) = resolve(&document, &flags).unwrap();
        assert_eq!(config.thresholds.high_percent, 100);
        assert!(!config.image_loop, "T134");
        assert_eq!(notices.len(), 1);
        assert!(notices[0].ends_with("clusterDNS, maxPods"), "{notices:?}");
    }

    /// T31: the sandbox image is protected under every name that distributions give it.
    #[test]
    fn pause_images_are_always_protected() {
        let (Settings { node: config, .. }, _) = resolve(&Value::Null, &NodeFlags::default()).unwrap();
        for (name, kept) in [
            ("registry.k8s.io/pause:3.10", true),
            ("k8s.gcr.io/pause:3.1", true),
            ("gcr.io/google_containers/pause-amd64:3.1", true),
            ("docker.io/rancher/mirrored-pause:3.6", true),
            ("localhost:5000/mirror/pause:3.9", true),
            ("registry.example/pause@sha256:feed", true),
            ("registry.example/pauseless:v1", false),
            ("registry.example/pause/app:v1", false),
        ] {
            let image = gc_collectors::images::Image {
                id: gc_collectors::images::ImageId::new(&"0".repeat(64)).unwrap(),
                repo_tags: vec![name.into()],
                repo_digests: Vec::new(),
                size_bytes: 0,
                pinned: false,
                runtime_handler: "".into(),
                layers: [].into(),
            };
            assert_eq!(config.protection.matching(&image).is_some(), kept, "{name}");
        }
    }

    /// T165.
    #[test]
    fn thresholds_on_writable_layers_are_ignored_with_a_notice() {
        let document = file(&json!({"evictionHard": {"containerfs.available": "10%"}}));
        let (Settings { node: config, .. }, notices) = resolve(&document, &NodeFlags::default()).unwrap();
        assert_eq!(config.eviction.len(), 1);
        let expected = "evictionHard[containerfs.available] is ignored: writable layers follow the filesystem that they lie on";
        assert_eq!(notices, [expected]);
    }

    /// The notices explain what the kubelet does: disabling the gate also disables the maximum age, a zero in a file means the
    /// default, and a limit of zero keeps no dead container at all.
    #[test]
    fn settings_that_surprise_are_explained() {
        let file = serde_json::json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration",
            "imageMaximumGCAge": "24h", "imageMinimumGCAge": "0s",
            "featureGates": {"ImageMaximumGCAge": false, "SwapOff": true},
        });
        let flags = NodeFlags { maximum_dead_containers_per_container: Some(0), ..NodeFlags::default() };
        let (Settings { node: config, .. }, notices) = resolve(&file, &flags).unwrap();
        assert_eq!(config.ages, AgePolicy { minimum_age: GoDuration::from_seconds(120), maximum_age: None });
        assert_eq!(config.containers.maximum_per_pod_container, Some(0));
        assert!(!config.containers.keep_newest_of_live_pods);
        let beginnings: Vec<&str> = notices.iter().map(|notice| &notice[..20]).collect();
        assert_eq!(
            beginnings,
            ["imageMinimumGCAge: 0", "featureGates has gat", "imageMaximumGCAge ha", "--maximum-dead-conta"]
        );
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            "\\PC{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(2, 8, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map("[a-z.]{1,20}", inner, 0..4)
                    .prop_map(|map| map.into_iter().collect()),
            ]
        })
    }

    proptest! {
        #[test]
        fn no_file_panics(values in prop::collection::vec((0..READ.len(), any_json()), 0..6), document in any_json()) {
            let _ = resolve(&document, &NodeFlags::default());
            let fields: Value = values.into_iter().map(|(name, value)| (READ[name].to_owned(), value)).collect();
            let _ = resolve(&file(&fields), &NodeFlags::default());
        }
    }
}
