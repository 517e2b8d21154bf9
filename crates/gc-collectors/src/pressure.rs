//! Disk pressure: eviction signals, and the items reclaimed for each (spec `node-gc.md`, section 8).

use std::collections::BTreeMap;
use std::fmt;

use gc_types::{GoDuration, UnixNanoseconds, parse_quantity};

use crate::images::space::{Filesystem, Goal};

/// Role of a filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Volumes, logs, and everything else under the kubelet's root.
    Node,
    /// Images (and writable layers, unless they are separate).
    Images,
    /// Writable layers.
    Containers,
}

/// Measured quantity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    /// Bytes.
    Available,
    /// Inodes.
    InodesFree,
}

/// One disk signal, such as `imagefs.available`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signal {
    /// Filesystem.
    pub role: Role,
    /// Quantity.
    pub measure: Measure,
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = match self.role {
            Role::Node => "nodefs",
            Role::Images => "imagefs",
            Role::Containers => "containerfs",
        };
        let measure = match self.measure {
            Measure::Available => "available",
            Measure::InodesFree => "inodesFree",
        };
        write!(f, "{role}.{measure}")
    }
}

/// Signals with thresholds that do not concern disks.
const OTHER_SIGNALS: [&str; 3] = ["memory.available", "allocatableMemory.available", "pid.available"];

const ALL: [Signal; 6] = {
    const fn signal(role: Role, measure: Measure) -> Signal {
        Signal { role, measure }
    }
    [
        signal(Role::Node, Measure::Available),
        signal(Role::Node, Measure::InodesFree),
        signal(Role::Images, Measure::Available),
        signal(Role::Images, Measure::InodesFree),
        signal(Role::Containers, Measure::Available),
        signal(Role::Containers, Measure::InodesFree),
    ]
};

/// Amount of bytes or inodes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Amount {
    /// A number of bytes or inodes.
    Quantity(u64),
    /// Percentage of the capacity.
    Percent(f64),
}

impl Amount {
    /// Returns it as a number, given the capacity; a percentage is truncated to a whole number.
    #[must_use]
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_precision_loss,
        reason = "a share of a capacity is computed in floating point and truncated, as upstream does"
    )]
    pub fn of(self, capacity: u64) -> u64 {
        match self {
            Self::Quantity(amount) => amount,
            Self::Percent(percent) => (capacity as f64 * percent / 100.0) as u64,
        }
    }
}

/// A signal and its limit.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threshold {
    /// The signal.
    pub signal: Signal,
    /// Amount below which it fires.
    pub limit: Amount,
    /// Minimum time for which the limit must be crossed.
    pub grace: GoDuration,
    /// Amount beyond the limit that must be available before the pressure ends.
    pub minimum_reclaim: Amount,
}

/// Eviction settings of a configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EvictionSettings {
    /// `evictionHard`; `None` means the defaults.
    pub hard: Option<BTreeMap<String, String>>,
    /// `evictionSoft`
    pub soft: BTreeMap<String, String>,
    /// `evictionSoftGracePeriod`
    pub soft_grace_period: BTreeMap<String, String>,
    /// `evictionMinimumReclaim`
    pub minimum_reclaim: BTreeMap<String, String>,
    /// `mergeDefaultEvictionSettings`
    pub merge_defaults: bool,
}

impl EvictionSettings {
    /// Returns the fields with thresholds on writable layers, which cannot be set: they follow those of their filesystem (8.1).
    /// They are validated, but otherwise ignored.
    #[must_use]
    pub fn ignored(&self) -> Vec<String> {
        let fields = [
            ("evictionHard", self.hard.as_ref()),
            ("evictionSoft", Some(&self.soft)),
            ("evictionMinimumReclaim", Some(&self.minimum_reclaim)),
        ];
        let named = |field: &str, map: &BTreeMap<String, String>| {
            let of_layers = map.keys().filter(|name| name.starts_with("containerfs."));
            of_layers.map(|name| format!("{field}[{name}]")).collect::<Vec<_>>()
        };
        fields.iter().flat_map(|(field, map)| map.map(|map| named(field, map)).unwrap_or_default()).collect()
    }
}

/// Upstream's disk defaults on Linux.
const DEFAULT_HARD: [(&str, &str); 4] = [
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
];

/// Parses the settings. Every problem is reported with the field, the signal, the value and the expected form.
pub fn parse(settings: &EvictionSettings) -> Result<Vec<Threshold>, Vec<String>> {
    let mut errors = Vec::new();
    let mut hard: BTreeMap<String, String> = settings.hard.clone().unwrap_or_default();
    if settings.hard.is_none() || settings.merge_defaults {
        for (signal, value) in DEFAULT_HARD {
            hard.entry(signal.into()).or_insert_with(|| value.into());
        }
    }
    let reclaim = read_map("evictionMinimumReclaim", &settings.minimum_reclaim, &mut errors, read_reclaim);
    let mut grace = BTreeMap::new();
    for (signal, text) in &settings.soft_grace_period {
        match text.parse::<GoDuration>() {
            Ok(period) if period >= GoDuration::ZERO => {
                grace.insert(signal.as_str(), period);
            }
            Ok(_) => errors.push(format!("evictionSoftGracePeriod[{signal}]: {text:?} must not be negative")),
            Err(error) => errors.push(format!("evictionSoftGracePeriod[{signal}]: {error}")),
        }
    }
    let mut thresholds = Vec::new();
    let minimum = |signal: Signal| reclaim.get(&signal).copied().flatten().unwrap_or(Amount::Quantity(0));
    for (signal, limit) in read_map("evictionHard", &hard, &mut errors, read_limit) {
        let Some(limit) = limit else { continue };
        thresholds.push(Threshold {
            signal,
            limit,
            grace: GoDuration::ZERO,
            minimum_reclaim: minimum(signal),
        });
    }
    for (signal, limit) in read_map("evictionSoft", &settings.soft, &mut errors, read_limit) {
        let Some(limit) = limit else { continue };
        match grace.get(signal.to_string().as_str()) {
            Some(&grace) => {
                thresholds.push(Threshold { signal, limit, grace, minimum_reclaim: minimum(signal) });
            }
            None => errors
                .push(format!("evictionSoft[{signal}]: expected a grace period in evictionSoftGracePeriod")),
        }
    }
    if errors.is_empty() { Ok(thresholds) } else { Err(errors) }
}

type Read = fn(&str) -> Result<Option<Amount>, &'static str>;

fn read_map(
    field: &str,
    map: &BTreeMap<String, String>,
    errors: &mut Vec<String>,
    read: Read,
) -> BTreeMap<Signal, Option<Amount>> {
    let mut amounts = BTreeMap::new();
    for (name, text) in map {
        let signal = ALL.iter().find(|signal| signal.to_string() == *name);
        if signal.is_none() && !OTHER_SIGNALS.contains(&name.as_str()) {
            errors.push(format!("{field}[{name}]: unknown eviction signal"));
            continue;
        }
        match (read(text), signal) {
            (Ok(amount), Some(signal)) => {
                amounts.insert(*signal, amount);
            }
            (Ok(_), None) => {}
            (Err(expected), _) => {
                errors.push(format!("{field}[{name}]: {text:?} is not valid; expected {expected}"));
            }
        }
    }
    amounts
}

/// Parses the number before a percent sign, if there is one; `Err` if it is not a number from 0 to 100.
fn percent(text: &str) -> Option<Result<f64, ()>> {
    let number = text.strip_suffix('%')?;
    let plain = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Some(number.parse().ok().filter(|value: &f64| plain && (0.0..=100.0).contains(value)).ok_or(()))
}

/// Parses a limit; `0%` and `100%` disable the signal.
fn read_limit(text: &str) -> Result<Option<Amount>, &'static str> {
    const EXPECTED: &str = "a positive quantity such as \"1Gi\", or a percentage from 0% to 100%";
    if text == "0%" || text == "100%" {
        return Ok(None);
    }
    read_amount(text, 1).map(Some).ok_or(EXPECTED)
}

fn read_reclaim(text: &str) -> Result<Option<Amount>, &'static str> {
    const EXPECTED: &str = "a quantity that is not negative, or a percentage above 0%";
    read_amount(text, 0).map(Some).ok_or(EXPECTED)
}

/// Parses a percentage above zero, or a quantity of at least `smallest`.
fn read_amount(text: &str, smallest: u64) -> Option<Amount> {
    match percent(text) {
        Some(share) => share.ok().filter(|share| *share > 0.0).map(Amount::Percent),
        None => {
            let quantity = parse_quantity(text).and_then(|quantity| u64::try_from(quantity).ok());
            quantity.filter(|quantity| *quantity >= smallest).map(Amount::Quantity)
        }
    }
}

/// Layout of a node's filesystems.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// Everything is on one filesystem.
    Single,
    /// Images and writable layers are on one of their own.
    DedicatedImages,
    /// Images are on one of their own, and writable layers with the rest.
    Split,
}

impl Topology {
    /// Determines the layout from `(device, capacity)` of the node's filesystem, of that of images and of that of writable layers.
    /// One device with different capacities is divided by quota, and counts as several (7.3).
    #[must_use]
    pub fn of(node: (u64, u64), images: (u64, u64), writable: (u64, u64)) -> Self {
        if images == node {
            Self::Single
        } else if writable == images {
            Self::DedicatedImages
        } else {
            Self::Split
        }
    }
}

/// Something that can be reclaimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reclaim {
    /// Dead containers, including those of finished pods that are not deleted.
    Containers,
    /// Unused images.
    Images,
}

/// Returns what to reclaim for a signal, in order (section 8.2).
#[must_use]
pub fn reclaims(topology: Topology, role: Role) -> &'static [Reclaim] {
    const BOTH: &[Reclaim] = &[Reclaim::Containers, Reclaim::Images];
    match (topology, role) {
        (Topology::Single, _) | (Topology::DedicatedImages, Role::Images | Role::Containers) => BOTH,
        (Topology::DedicatedImages, Role::Node) => &[],
        (Topology::Split, Role::Images) => &[Reclaim::Images],
        (Topology::Split, Role::Node | Role::Containers) => &[Reclaim::Containers],
    }
}

/// Filesystems as measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeasuredFilesystems {
    /// Their layout.
    pub topology: Topology,
    /// Filesystem of the node.
    pub node: Filesystem,
    /// Filesystem of the images.
    pub images: Filesystem,
}

impl MeasuredFilesystems {
    /// Returns the filesystem of a signal. Thresholds on writable layers follow those of their filesystem, so users cannot set them
    /// separately (8.1).
    fn of(&self, role: Role) -> &Filesystem {
        match (role, self.topology) {
            (Role::Node, _) | (_, Topology::Single) | (Role::Containers, Topology::Split) => &self.node,
            (Role::Images, _) | (Role::Containers, Topology::DedicatedImages) => &self.images,
        }
    }
}

/// A firing signal: what to reclaim, and the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pressure {
    /// The signal.
    pub signal: Signal,
    /// Reclaims to try, in order.
    pub reclaims: &'static [Reclaim],
    /// Goal.
    pub goal: Goal,
}

/// Times since which limits have been crossed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PressureMemory {
    /// Times by index in the list of thresholds.
    since: BTreeMap<usize, UnixNanoseconds>,
}

/// Returns the signals that fire now. A signal that fired stays on until the available amount exceeds the limit plus its minimum
/// reclaim.
pub fn observe(
    thresholds: &[Threshold],
    measured: &MeasuredFilesystems,
    memory: &mut PressureMemory,
    now: UnixNanoseconds,
) -> Vec<Pressure> {
    let mut fired = Vec::new();
    for (place, threshold) in thresholds.iter().enumerate().filter(|(_, t)| t.signal.role != Role::Containers)
    {
        let filesystem = measured.of(threshold.signal.role);
        let (capacity, left) = match threshold.signal.measure {
            Measure::Available => (filesystem.capacity_bytes, filesystem.available_bytes),
            Measure::InodesFree => (filesystem.inodes, filesystem.inodes_free),
        };
        if capacity == 0 {
            // The filesystem was not measured, or has no inodes, which proves nothing.
            memory.since.remove(&place);
            continue;
        }
        let limit = threshold.limit.of(capacity);
        let wanted = limit.saturating_add(threshold.minimum_reclaim.of(capacity));
        let met = left < limit || memory.since.contains_key(&place) && left <= wanted;
        if !met {
            memory.since.remove(&place);
            continue;
        }
        let since = *memory.since.entry(place).or_insert(now);
        if now.since(since) < threshold.grace {
            continue;
        }
        let goal = |bytes, inodes| Goal {
            path: filesystem.path.clone(),
            available_bytes: bytes,
            inodes_free: inodes,
        };
        fired.push(Pressure {
            signal: threshold.signal,
            reclaims: reclaims(measured.topology, threshold.signal.role),
            goal: match threshold.signal.measure {
                Measure::Available => goal(wanted.saturating_add(1), 0),
                Measure::InodesFree => goal(0, wanted.saturating_add(1)),
            },
        });
    }
    fired
}

#[cfg(test)]
mod tests {
    use super::*;

    const IMAGES_AVAILABLE: Signal = Signal { role: Role::Images, measure: Measure::Available };

    fn settings(hard: &[(&str, &str)]) -> EvictionSettings {
        let own = |list: &[(&str, &str)]| list.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        EvictionSettings { hard: Some(own(hard)), ..EvictionSettings::default() }
    }

    fn threshold(limit: Amount) -> Threshold {
        Threshold {
            signal: IMAGES_AVAILABLE,
            limit,
            grace: GoDuration::ZERO,
            minimum_reclaim: Amount::Quantity(0),
        }
    }

    /// T164.
    #[test]
    fn limits_are_read_as_the_kubelet_does() {
        for (text, expected) in [
            ("15%", Some(vec![threshold(Amount::Percent(15.0))])),
            ("1Ki", Some(vec![threshold(Amount::Quantity(1024))])),
            ("7.5%", Some(vec![threshold(Amount::Percent(7.5))])),
            ("1e1%", None),
            ("0%", Some(vec![])),
            ("100%", Some(vec![])),
            ("-1%", None),
            ("101%", None),
            ("0", None),
            ("-5Mi", None),
            ("foo%", None),
            ("inf%", None),
            ("%", None),
            ("", None),
        ] {
            assert_eq!(parse(&settings(&[("imagefs.available", text)])).ok(), expected, "{text:?}");
        }
    }

    #[test]
    fn every_problem_is_named() {
        let mut bad =
            settings(&[("disk.available", "1Gi"), ("memory.available", "x"), ("pid.available", "5%")]);
        bad.soft = [("nodefs.available".to_owned(), "10%".to_owned())].into();
        bad.soft_grace_period = [("imagefs.available".to_owned(), "-1s".to_owned())].into();
        bad.minimum_reclaim = [("nodefs.available".to_owned(), "0%".to_owned())].into();
        assert_eq!(
            parse(&bad),
            Err(vec![
                r#"evictionMinimumReclaim[nodefs.available]: "0%" is not valid; expected a quantity that is not negative, or a percentage above 0%"#.into(),
                r#"evictionSoftGracePeriod[imagefs.available]: "-1s" must not be negative"#.into(),
                "evictionHard[disk.available]: unknown eviction signal".into(),
                r#"evictionHard[memory.available]: "x" is not valid; expected a positive quantity such as "1Gi", or a percentage from 0% to 100%"#.into(),
                "evictionSoft[nodefs.available]: expected a grace period in evictionSoftGracePeriod".into(),
            ])
        );
    }

    #[test]
    fn a_soft_limit_has_a_grace_period_that_may_be_zero() {
        for (text, expected) in [("0s", Some(0)), ("90s", Some(90)), ("-1s", None), ("soon", None)] {
            let mut soft = settings(&[]);
            soft.soft = [("imagefs.available".to_owned(), "15%".to_owned())].into();
            soft.soft_grace_period = [("imagefs.available".to_owned(), text.to_owned())].into();
            let grace = |seconds| Threshold {
                grace: GoDuration::from_seconds(seconds),
                ..threshold(Amount::Percent(15.0))
            };
            assert_eq!(parse(&soft).ok(), expected.map(|seconds| vec![grace(seconds)]), "{text}");
        }
    }

    #[test]
    fn defaults_apply_when_hard_is_absent_or_merged() {
        let count = |settings: &EvictionSettings| parse(settings).map(|list| list.len());
        assert_eq!(count(&EvictionSettings::default()), Ok(4));
        assert_eq!(count(&settings(&[("imagefs.available", "1%")])), Ok(1));
        let merged = EvictionSettings { merge_defaults: true, ..settings(&[("imagefs.available", "1%")]) };
        let limits: Vec<_> =
            parse(&merged).unwrap_or_default().into_iter().map(|t| (t.signal, t.limit)).collect();
        assert_eq!(limits.len(), 4);
        assert!(limits.contains(&(IMAGES_AVAILABLE, Amount::Percent(1.0))), "the user's value wins");
    }

    /// T124 to T126: the topology decides which items each signal reclaims.
    #[test]
    fn what_helps_depends_on_the_topology() {
        use Reclaim::{Containers, Images};
        for (topology, role, expected) in [
            (Topology::Single, Role::Node, &[Containers, Images][..]),
            (Topology::Single, Role::Images, &[Containers, Images]),
            (Topology::DedicatedImages, Role::Node, &[]),
            (Topology::DedicatedImages, Role::Images, &[Containers, Images]),
            (Topology::Split, Role::Node, &[Containers]),
            (Topology::Split, Role::Images, &[Images]),
        ] {
            assert_eq!(reclaims(topology, role), expected, "{topology:?} {role:?}");
        }
    }

    /// T131: which filesystems count as one, and which as several.
    #[test]
    fn a_topology_is_known_by_device_and_capacity() {
        for (case, node, images, writable, expected) in [
            ("all together", (1, 10), (1, 10), (1, 10), Topology::Single),
            ("another device", (1, 10), (2, 10), (2, 10), Topology::DedicatedImages),
            ("the same device, other figures", (1, 10), (1, 5), (1, 5), Topology::DedicatedImages),
            ("writable layers with the node", (1, 10), (2, 10), (1, 10), Topology::Split),
            ("three of them", (1, 10), (2, 10), (3, 10), Topology::Split),
        ] {
            assert_eq!(Topology::of(node, images, writable), expected, "{case}");
        }
    }

    /// T165: thresholds on writable layers are those of their filesystem; a user's own are ignored, and reported.
    #[test]
    fn thresholds_on_writable_layers_follow_their_filesystem() {
        let mut set = settings(&[("containerfs.available", "99%"), ("imagefs.available", "15%")]);
        set.minimum_reclaim = [("containerfs.inodesFree".to_owned(), "1".to_owned())].into();
        assert_eq!(
            set.ignored(),
            ["evictionHard[containerfs.available]", "evictionMinimumReclaim[containerfs.inodesFree]"]
        );
        let thresholds = parse(&set).unwrap_or_default();
        let fired = |available| {
            let found = observe(
                &thresholds,
                &measured(available),
                &mut PressureMemory::default(),
                UnixNanoseconds(0),
            );
            found.iter().map(|pressure| (pressure.signal, pressure.reclaims)).collect::<Vec<_>>()
        };
        assert_eq!(fired(500), []);
        assert_eq!(fired(149), [(IMAGES_AVAILABLE, &[Reclaim::Containers, Reclaim::Images][..])]);
        for (topology, follows) in [
            (Topology::Single, Role::Node),
            (Topology::Split, Role::Node),
            (Topology::DedicatedImages, Role::Images),
        ] {
            assert_eq!(reclaims(topology, Role::Containers), reclaims(topology, follows), "{topology:?}");
        }
        assert!(settings(&[("imagefs.available", "15%")]).ignored().is_empty());
    }

    fn measured(available: u64) -> MeasuredFilesystems {
        let disk = |path: &str, available_bytes| Filesystem {
            path: path.into(),
            capacity_bytes: 1000,
            available_bytes,
            inodes: 0,
            inodes_free: 0,
        };
        MeasuredFilesystems {
            topology: Topology::DedicatedImages,
            node: disk("/node", 900),
            images: disk("/images", available),
        }
    }

    /// T127: a signal stays until limit plus minimum reclaim is exceeded.
    #[test]
    fn a_signal_stays_on_until_the_minimum_is_reclaimed() {
        let thresholds =
            [Threshold { minimum_reclaim: Amount::Quantity(50), ..threshold(Amount::Percent(15.0)) }];
        let mut memory = PressureMemory::default();
        let mut fires = |available| {
            let fired = observe(&thresholds, &measured(available), &mut memory, UnixNanoseconds(0));
            fired.first().map(|pressure| pressure.goal.available_bytes)
        };
        let found: Vec<_> = [150, 149, 150, 200, 201, 160].into_iter().map(&mut fires).collect();
        assert_eq!(found, [None, Some(201), Some(201), Some(201), None, None]);
    }

    #[test]
    fn a_soft_threshold_waits_for_its_grace_period() {
        let thresholds = [Threshold { grace: GoDuration(10), ..threshold(Amount::Quantity(100)) }];
        let mut memory = PressureMemory::default();
        let mut fires = |available, at| {
            !observe(&thresholds, &measured(available), &mut memory, UnixNanoseconds(at)).is_empty()
        };
        assert!(!fires(50, 0) && !fires(50, 9) && fires(50, 10), "long enough");
        assert!(
            !fires(500, 11) && !fires(50, 12) && !fires(50, 21) && fires(50, 22),
            "fires again after relief"
        );
    }
}
