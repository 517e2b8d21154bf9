//! X-T07: whatever a collector has observed, it decides nothing before everything that it watches has been listed; and what a list
//! lacks is as good as removed.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::BTreeSet;

use gc_collectors::certificates::CertificateCollector;
use gc_collectors::collectors::{Controller, Watches};
use gc_collectors::engine::{AnyCollector, Engine, Observation};
use gc_collectors::expiry::FinishedExpiry;
use gc_collectors::jobs::JobCollector;
use gc_collectors::lease_candidates::LeaseCandidateCollector;
use gc_collectors::leases::LeaseCollector;
use gc_collectors::nodes::{NodeLifecycle, NodePolicy};
use gc_collectors::objects::{Facts, Kind};
use gc_collectors::pod_certificates::PodCertificateCollector;
use gc_collectors::pods::PodCollector;
use gc_collectors::storage_versions::StorageVersionCollector;
use gc_collectors::tokens::{CLEAN_UP_PERIOD_MILLISECONDS, TokenCollector};
use gc_collectors::volumes::reclaim::{Deleters, VolumeReclaim};
use gc_collectors::volumes::{AttributesClassProtection, ClaimProtection, VolumeProtection};
use gc_types::{ObjectKey, Request, Timestamp};
use serde_json::{Value, json};

const NOW: Timestamp = Timestamp(1_800_000_000_000);
const LONG_AGO: &str = "2020-01-01T00:00:00Z";

/// Returns an object of each kind with which some collector has something to do.
fn overdue(kind: Kind) -> Value {
    let metadata = json!({"namespace": "shop", "name": "a", "uid": "u", "resourceVersion": "5",
        "creationTimestamp": LONG_AGO});
    let with = |more: Value| {
        let mut object = json!({ "metadata": metadata });
        for (pointer, value) in more.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            object.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        object
    };
    let finished = |kind: &str| {
        json!({"conditions": [{"type": kind, "status": "True", "lastTransitionTime": LONG_AGO,
            "lastUpdateTime": LONG_AGO}]})
    };
    match kind {
        Kind::Pod => {
            with(json!({"/spec": {}, "/status": {"phase": "Failed"}, "/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/deletionGracePeriodSeconds": 30, "/metadata/annotations": {"kubegc.io/ttl": "1h"}}))
        }
        Kind::Job => with(json!({"/spec": {"ttlSecondsAfterFinished": 1}, "/status": finished("Complete"),
            "/metadata/annotations": {"kubegc.io/ttl": "1h"}})),
        Kind::SigningRequest => with(json!({"/status": finished("Denied")})),
        Kind::Volume => with(json!({"/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/finalizers": ["kubernetes.io/pv-protection"], "/status": {"phase": "Released"},
            "/spec": {"persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": "/tmp/a"},
                "claimRef": {"namespace": "shop", "name": "data", "uid": "gone"}}})),
        Kind::Claim => with(json!({"/metadata/deletionTimestamp": LONG_AGO,
            "/metadata/finalizers": ["kubernetes.io/pvc-protection"]})),
        Kind::Lease => with(json!({"/metadata/namespace": "kube-system",
            "/metadata/labels": {"apiserver.kubernetes.io/identity": "kube-apiserver"}})),
        Kind::TokenSecret => {
            with(json!({"/metadata/annotations": {"kubernetes.io/service-account.name": "a"}}))
        }
        Kind::ServiceAccount => with(json!({"/secrets": [{"name": "a"}]})),
        Kind::TokenTracking => with(json!({"/data": {"since": "2020-01-01"}})),
        Kind::StorageVersion => {
            with(json!({"/status": {"storageVersions": [{"apiServerID": "gone", "encodingVersion": "v1"}]}}))
        }
        _ => with(json!({})),
    }
}

fn all() -> Vec<(Controller, Box<dyn AnyCollector>)> {
    let deleters = Deleters { host_path: true, ..Deleters::default() };
    vec![
        (Controller::PodGarbageCollector, Box::new(Engine::new(PodCollector::new(0)))),
        (Controller::TtlAfterFinished, Box::new(Engine::new(JobCollector::default()))),
        (Controller::CertificateCleaner, Box::new(Engine::new(CertificateCollector::default()))),
        (Controller::PodCertificateCleaner, Box::new(Engine::new(PodCertificateCollector::default()))),
        (Controller::ClaimProtection, Box::new(Engine::new(ClaimProtection::default()))),
        (Controller::VolumeProtection, Box::new(Engine::new(VolumeProtection::default()))),
        (Controller::AttributesClassProtection, Box::new(Engine::new(AttributesClassProtection::default()))),
        (Controller::VolumeReclaim, Box::new(Engine::new(VolumeReclaim::new(deleters)))),
        (Controller::NodeLifecycle, Box::new(Engine::new(NodeLifecycle::new(NodePolicy::default())))),
        (Controller::StaleLease, Box::new(Engine::new(LeaseCollector::new(true)))),
        (Controller::LeaseCandidate, Box::new(Engine::new(LeaseCandidateCollector::default()))),
        (
            Controller::LegacyTokenCleaner,
            Box::new(Engine::new(TokenCollector::new(CLEAN_UP_PERIOD_MILLISECONDS))),
        ),
        (Controller::StorageVersion, Box::new(Engine::new(StorageVersionCollector::default()))),
        (Controller::Expiry, Box::new(Engine::new(FinishedExpiry::default()))),
    ]
}

/// The table declares what each collector watches. (Collectors of every kind have no narrow facts, except for finished objects that
/// expire.)
#[test]
fn the_table_says_what_each_watches() {
    let covered: BTreeSet<Controller> = all().iter().map(|(controller, _)| *controller).collect();
    for (controller, collector) in all() {
        let expected = match controller.collector().watches {
            Watches::Kinds(kinds) => kinds,
            Watches::Everything | Watches::ByPolicies => &[Kind::Pod, Kind::Job],
        };
        assert_eq!(collector.kinds(), expected, "{controller}");
    }
    let others = Controller::ALL.into_iter().filter(|one| !covered.contains(one));
    let narrow: Vec<_> = others.filter(|one| matches!(one.collector().watches, Watches::Kinds(_))).collect();
    assert!(narrow.is_empty(), "not tested here: {narrow:#?}");
}

#[test]
fn nothing_is_decided_before_the_lists_are_complete() {
    for (name, mut collector) in all() {
        let kinds = collector.kinds();
        collector.tick(NOW);
        for kind in kinds {
            collector.observe(Observation::ListStarted(*kind));
            let object = overdue(*kind).to_string();
            collector.observe(Observation::Observed(Facts::read(*kind, object.as_bytes()).unwrap()));
            assert_eq!(collector.poll_effect(), None, "{name}");
        }
        for kind in kinds {
            assert!(!collector.standing().synced, "{name}");
            assert_eq!((collector.poll_effect(), collector.next_wakeup()), (None, None), "{name}");
            collector.observe(Observation::Synced(*kind));
        }
        // After that there is something to do, so the lists were the reason for doing nothing.
        assert!(collector.standing().synced && collector.poll_effect().is_some(), "{name}");
    }
}

/// Returns the key under which a collector knows the overdue object of a kind.
fn key(kind: Kind) -> ObjectKey {
    let metadata = overdue(kind)["metadata"].clone();
    let text = |field: &str| metadata[field].as_str().unwrap_or_default().into();
    kind.key(&text("namespace"), &text("name"))
}

/// Lists an object of each kind, lets this happen, and returns everything requested the next day.
fn requested(mut collector: Box<dyn AnyCollector>, happens: impl Fn(&mut dyn AnyCollector)) -> Vec<Request> {
    collector.tick(NOW);
    for kind in collector.kinds() {
        collector.observe(Observation::ListStarted(*kind));
        let object = overdue(*kind).to_string();
        collector.observe(Observation::Observed(Facts::read(*kind, object.as_bytes()).unwrap()));
    }
    for kind in collector.kinds() {
        collector.observe(Observation::Synced(*kind));
    }
    happens(&mut *collector);
    collector.tick(NOW.after(24 * 60 * 60 * 1_000));
    std::iter::from_fn(|| collector.poll_effect()).take(100).map(|effect| effect.request).collect()
}

/// An object that is missing from the next list is as good as removed: the collector requests what it would request after an event
/// that says so, and nothing about the object itself.
#[test]
fn what_a_list_lacks_is_as_good_as_removed() {
    let collectors = all();
    for (index, (name, collector)) in collectors.into_iter().enumerate() {
        let kinds = collector.kinds();
        let fresh = || all().swap_remove(index).1;
        let before = requested(collector, |_| ());
        assert!(!before.is_empty(), "{name}");
        let mut has_changed = false;
        for kind in kinds {
            let removed = requested(fresh(), |collector| collector.observe(Observation::Removed(key(*kind))));
            let relisted = requested(fresh(), |collector| {
                collector.observe(Observation::ListStarted(*kind));
                collector.observe(Observation::Synced(*kind));
            });
            assert_eq!(relisted, removed, "{name}: {kind:?}");
            has_changed |= removed != before;
        }
        assert!(has_changed, "{name}");
    }
}
