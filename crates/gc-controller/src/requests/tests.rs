//! Exchanges with any responses of the server. The meaning of single responses is tested over HTTP, in `gc-kube`.

use gc_types::{DeletionState, Gvr, ResourceId, Scope};

use super::*;

const UID: &str = "0e2f1a34-5b6c-4d7e-8f90-a1b2c3d4e5f6";
const OTHER: &str = "11111111-5b6c-4d7e-8f90-a1b2c3d4e5f6";
/// Maximum number of calls in an exchange: four attempts to remove a finalizer, each with a read, a patch, and a read after that.
const MOST_CALLS: u32 = 12;

fn resource() -> ResourceInfo {
    ResourceInfo {
        id: ResourceId(1),
        gvr: Gvr { group: "".into(), version: "v1".into(), resource: "pods".into() },
        kind: "Pod".into(),
        scope: Scope::Namespaced,
        served_api_versions: vec!["v1".into()],
        watched: true,
        comparable_versions: true,
    }
}

fn key() -> ObjectKey {
    ObjectKey { resource: ResourceId(1), namespace: "shop".into(), name: "web".into() }
}

/// A possible response of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ServerAnswer {
    /// The object, with the finalizer.
    Object,
    /// Another object of the same name.
    Another,
    /// A proxy's page.
    Page,
    /// A Status of success.
    Success,
    /// A Status with this code, about the object.
    Refused(u16),
    /// No response.
    Nothing,
}

const ALL: [ServerAnswer; 9] = [
    ServerAnswer::Object,
    ServerAnswer::Another,
    ServerAnswer::Page,
    ServerAnswer::Success,
    ServerAnswer::Refused(404),
    ServerAnswer::Refused(409),
    ServerAnswer::Refused(422),
    ServerAnswer::Refused(500),
    ServerAnswer::Nothing,
];

impl Answer for ServerAnswer {
    fn code(&self) -> u16 {
        match self {
            Self::Refused(code) => *code,
            _ => 200,
        }
    }

    fn retry_after(&self) -> Option<Duration> {
        None
    }

    fn is_object(&self) -> bool {
        matches!(self, Self::Object | Self::Another)
    }

    fn object(&self) -> Result<AnsweredObject, String> {
        let uid = Uid::new(if *self == Self::Object { UID } else { OTHER });
        let observed = ObservedObject {
            key: key(),
            uid,
            resource_version: ResourceVersion(7),
            deletion: DeletionState { deleting: true, foreground: true, ..DeletionState::default() },
            owners: [].into_iter().collect(),
            recreator: None,
        };
        let finalizers = vec!["foregroundDeletion".to_owned()];
        Ok(AnsweredObject { observed, resource_version: "7".to_owned(), grace_seconds: Some(0), finalizers })
    }

    fn status(&self) -> Option<Status> {
        let reason = match self {
            Self::Refused(404) => "NotFound",
            Self::Refused(_) | Self::Success => "",
            _ => return None,
        };
        let (name, kind) = ("web".to_owned(), "pods".to_owned());
        Some(Status { reason: reason.to_owned(), name, kind, ..Status::default() })
    }

    fn text(&self) -> String {
        "text".to_owned()
    }
}

fn requests() -> Vec<Request> {
    let (uid, version) = (Uid::new(UID), ResourceVersion(5));
    let guarded =
        |change| Request::Guarded { key: key(), uid: uid.clone(), resource_version: version, change };
    vec![
        Request::Read { key: key() },
        Request::Delete {
            key: key(),
            uid: uid.clone(),
            resource_version: Some(version),
            policy: PropagationPolicy::Background,
        },
        Request::SetOwners { key: key(), uid: uid.clone(), resource_version: version, remaining: Vec::new() },
        Request::RemoveFinalizer {
            key: key(),
            uid: uid.clone(),
            finalizer: FinalizerName::ForegroundDeletion,
        },
        guarded(Change::ForceDelete),
        guarded(Change::Finalizers(Vec::new())),
        guarded(Change::Merge("{\"spec\":{}}".into())),
        guarded(Change::Status("{}".into())),
    ]
}

/// Asserts that every change names the UID it is about, and the version that it was decided on, or that was just read.
fn assert_guarded(call: &Call, request: &Request) {
    let guards = match call.verb {
        Verb::Get => return,
        Verb::Delete => &call.body["preconditions"],
        Verb::MergePatch | Verb::StrategicPatch => &call.body["metadata"],
    };
    assert_eq!(guards["uid"], UID, "{request:?}: {call:?}");
    assert!(guards["resourceVersion"] == "5" || guards["resourceVersion"] == "7", "{request:?}: {call:?}");
}

/// Answers the calls of a request with these in turn, then with the last one repeatedly.
fn exchange(request: &Request, said: &[ServerAnswer]) -> PerformedRequest {
    let resource = resource();
    let (mut exchange, mut step) = Exchange::begin(request, &resource);
    let mut calls = 0;
    loop {
        step = match step {
            Step::Done(performed) => {
                assert_eq!(performed.round_trips, calls, "{request:?}: {said:?}");
                return performed;
            }
            Step::Pause(_) => exchange.paused(),
            Step::Send(call) => {
                assert_guarded(&call, request);
                let index = usize::try_from(calls).unwrap_or(usize::MAX).min(said.len() - 1);
                calls += 1;
                assert!(calls <= MOST_CALLS, "{request:?} does not end: {said:?}");
                match said[index] {
                    ServerAnswer::Nothing => exchange.unanswered("no answer"),
                    said => exchange.answered(&said),
                }
            }
        };
    }
}

/// Every exchange ends, every change has preconditions, and only a Status that names the object, or another object of its name,
/// proves its absence, whatever three responses come before the last repeats.
#[test]
fn every_exchange_ends_guarded_and_proves_no_absence_without_proof() {
    for request in requests() {
        for first in ALL {
            for second in ALL {
                for third in ALL {
                    let said = [first, second, third];
                    let PerformedRequest { outcome, .. } = exchange(&request, &said);
                    let proof = [ServerAnswer::Refused(404), ServerAnswer::Another];
                    if outcome == Outcome::Absent {
                        assert!(said.iter().any(|said| proof.contains(said)), "{request:?}: {said:?}");
                    }
                    if said == [ServerAnswer::Nothing; 3] {
                        assert!(matches!(outcome, Outcome::Failed { .. }), "{request:?}: {outcome:?}");
                    }
                }
            }
        }
    }
}

/// Each response to the first call has a fixed meaning, for a deletion and for a read.
#[test]
fn single_answers_mean_the_same_for_all() {
    let requests = requests();
    let (read, delete) = (&requests[0], &requests[1]);
    let failed = |message: &str| failed(message);
    for (said, to_delete, to_read) in [
        (ServerAnswer::Success, Outcome::Applied(None), failed(UNREADABLE)),
        (ServerAnswer::Refused(404), Outcome::Absent, Outcome::Absent),
        (ServerAnswer::Refused(409), Outcome::Conflict, Outcome::Conflict),
        (ServerAnswer::Nothing, failed("no answer"), failed("no answer")),
        (ServerAnswer::Page, failed(UNREADABLE), failed(UNREADABLE)),
    ] {
        assert_eq!(exchange(delete, &[said]).outcome, to_delete, "{said:?}");
        assert_eq!(exchange(read, &[said]).outcome, to_read, "{said:?}");
    }
}
