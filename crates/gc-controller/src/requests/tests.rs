//! Exchanges with any responses of the server. The meaning of single responses is tested over HTTP, in `gc-kube`.
#![allow(clippy::unwrap_used)] // a failed unwrap is a failed test

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

/// A response with all its parts.
#[derive(Clone, Debug)]
struct Response {
    code: u16,
    /// Seconds.
    retry_after: Option<u64>,
    body: Body,
}

#[derive(Clone, Debug)]
enum Body {
    Object(AnsweredObject),
    Status(Status),
    Text,
}

impl Response {
    fn of(code: u16, body: Body) -> Self {
        Self { code, retry_after: None, body }
    }
}

impl Answer for Response {
    fn code(&self) -> u16 {
        self.code
    }

    fn retry_after(&self) -> Option<Duration> {
        self.retry_after.map(Duration::from_secs)
    }

    fn is_object(&self) -> bool {
        matches!(self.body, Body::Object(_))
    }

    fn object(&self) -> Result<AnsweredObject, String> {
        match &self.body {
            Body::Object(object) => Ok(object.clone()),
            _ => Err("no object".to_owned()),
        }
    }

    fn status(&self) -> Option<Status> {
        match &self.body {
            Body::Status(status) => Some(status.clone()),
            _ => None,
        }
    }

    fn text(&self) -> String {
        "text".to_owned()
    }
}

fn status(reason: &str, group: &str, kind: &str, name: &str) -> Status {
    let [reason, group, kind, name] = [reason, group, kind, name].map(str::to_owned);
    Status { reason, message: "why".to_owned(), group, kind, name, retry_after_seconds: 0 }
}

/// Returns the object of the requests with these finalizers, terminating or not.
fn shown(deleting: bool, finalizers: &[&str], grace_seconds: Option<i64>) -> AnsweredObject {
    let observed = ObservedObject {
        key: key(),
        uid: Uid::new(UID),
        resource_version: ResourceVersion(7),
        deletion: DeletionState { deleting, ..DeletionState::default() },
        owners: [].into_iter().collect(),
        recreator: None,
    };
    let finalizers = finalizers.iter().map(|&finalizer| finalizer.to_owned()).collect();
    AnsweredObject { observed, resource_version: "7".to_owned(), grace_seconds, finalizers }
}

/// Answers the calls of a request with these in turn, `None` for no response. Returns the calls and pauses, and the result.
fn converse(request: &Request, responses: &[Option<Response>]) -> (Vec<String>, PerformedRequest) {
    let resource = resource();
    let mut responses = responses.iter();
    let (mut exchange, mut step) = Exchange::begin(request, &resource);
    let mut log = Vec::new();
    loop {
        step = match step {
            Step::Done(performed) => {
                assert!(responses.next().is_none(), "a response was not waited for: {log:#?}");
                return (log, performed);
            }
            Step::Pause(pause) => {
                log.push(format!("pause {pause:?}"));
                exchange.paused()
            }
            Step::Send(call) => {
                let body = if call.body.is_null() { String::new() } else { format!(" {}", call.body) };
                log.push(format!("{:?}{}{body}", call.verb, call.subresource));
                match responses.next().unwrap_or_else(|| panic!("no response is left: {log:#?}")) {
                    Some(response) => exchange.answered(response),
                    None => exchange.unanswered("no answer"),
                }
            }
        };
    }
}

/// Only a Status of the server itself that names the object, or the namespace it would be in, proves anything.
#[test]
fn a_status_proves_what_it_names() {
    let requested = |namespace| RequestedObject {
        group: "apps",
        resource: "deployments",
        kind: "Deployment",
        namespace,
        name: "web",
    };
    // Whether it proves that the object is absent, in a namespace and at cluster scope, and that the resource is not served.
    for ((reason, group, kind, name), absent, absent_of_cluster, unserved) in [
        (("NotFound", "apps", "deployments", "web"), true, true, false),
        (("NotFound", "apps", "Deployment", "web"), true, true, false),
        (("NotFound", "apps", "deployments", "other"), false, false, false),
        (("NotFound", "apps", "deployments", ""), false, false, true),
        (("NotFound", "apps", "Deployment", ""), false, false, true),
        (("NotFound", "", "deployments", "web"), false, false, false),
        (("NotFound", "", "deployments", ""), false, false, false),
        (("NotFound", "apps", "pods", "web"), false, false, false),
        (("NotFound", "apps", "pods", ""), false, false, false),
        (("Gone", "apps", "deployments", "web"), false, false, false),
        (("", "apps", "deployments", ""), false, false, false),
        (("NotFound", "", "namespaces", "shop"), true, false, false),
        (("NotFound", "", "namespaces", "web"), false, false, false),
        (("NotFound", "", "namespaces", ""), false, false, false),
        (("NotFound", "apps", "namespaces", "shop"), false, false, false),
        (("Forbidden", "", "namespaces", "shop"), false, false, false),
    ] {
        let status = status(reason, group, kind, name);
        let proves = [
            status.proves_absence(&requested("shop")),
            status.proves_absence(&requested("")),
            status.proves_unserved("apps", "deployments", "Deployment"),
        ];
        assert_eq!(proves, [absent, absent_of_cluster, unserved], "{status:?}");
    }
}

/// The code of a response decides whether a change was refused for good, may be tried again, and when.
#[test]
fn a_response_without_success_is_refused_or_tried_again() {
    let delete = &requests()[1];
    let failed = |code: u16, message: &str, wait: Option<u64>| Outcome::Failed {
        message: format!("the server answered {code}: {message}"),
        retry_after_milliseconds: wait,
    };
    let refused = |code: u16| Outcome::Refused { code, message: "why".to_owned() };
    let busy = |seconds: Option<u64>| Signal::Busy(seconds.map(Duration::from_secs));
    let plain = || Body::Status(status("", "", "pods", "web"));
    let waiting = |seconds| Body::Status(Status { retry_after_seconds: seconds, ..status("", "", "", "") });
    for (code, header, body, outcome, signal) in [
        (400, None, plain(), refused(400), Signal::Answered),
        (403, Some(9), plain(), refused(403), Signal::Answered),
        (403, None, Body::Text, Outcome::Refused { code: 403, message: "text".into() }, Signal::Answered),
        (404, None, Body::Status(status("NotFound", "", "pods", "web")), Outcome::Absent, Signal::Answered),
        (
            404,
            None,
            Body::Status(status("NotFound", "", "pods", "other")),
            Outcome::NotServed,
            Signal::Answered,
        ),
        (404, None, Body::Text, Outcome::NotServed, Signal::Answered),
        (408, None, plain(), failed(408, "why", None), Signal::Answered),
        (409, None, plain(), Outcome::Conflict, Signal::Answered),
        (422, None, plain(), refused(422), Signal::Answered),
        (429, Some(7), waiting(3), failed(429, "why", Some(7_000)), busy(Some(7))),
        (429, None, waiting(3), failed(429, "why", Some(3_000)), busy(Some(3))),
        (429, None, waiting(0), failed(429, "why", None), busy(None)),
        (499, None, plain(), refused(499), Signal::Answered),
        (500, Some(2), plain(), failed(500, "why", Some(2_000)), Signal::Answered),
        (503, None, Body::Text, failed(503, "text", None), busy(None)),
        (504, Some(1), Body::Text, failed(504, "text", Some(1_000)), busy(Some(1))),
        (302, None, Body::Text, failed(302, "text", None), Signal::Answered),
        (199, None, Body::Text, failed(199, "text", None), Signal::Answered),
    ] {
        let response = Response { code, retry_after: header, body };
        let (_, performed) = converse(delete, &[Some(response.clone())]);
        assert_eq!(performed, PerformedRequest { outcome, signal, round_trips: 1 }, "{response:?}");
    }
    let (_, performed) = converse(delete, &[None]);
    let outcome = Outcome::Failed { message: "no answer".into(), retry_after_milliseconds: None };
    assert_eq!(performed, PerformedRequest { outcome, signal: Signal::Busy(None), round_trips: 1 });
}

/// The response to a DELETE shows the object: if it is terminating and anything holds it, it is still there.
#[test]
fn a_deleted_object_remains_if_it_is_held() {
    let delete = &requests()[1];
    for (deleting, finalizers, grace, remains) in [
        (true, &["example.com/hold"][..], None, true),
        (true, &["example.com/hold"], Some(0), true),
        (true, &[], Some(30), true),
        (true, &[], None, true),
        (true, &[], Some(0), false),
        (false, &["example.com/hold"], None, false),
        (false, &[], Some(30), false),
    ] {
        let object = shown(deleting, finalizers, grace);
        let (_, performed) = converse(delete, &[Some(Response::of(200, Body::Object(object.clone())))]);
        let outcome = Outcome::Applied(remains.then(|| object.observed.clone()));
        assert_eq!(performed.outcome, outcome, "{object:?}");
    }
    // An object of another name or namespace belongs to another request, and a read has to show what became of this one.
    for change in
        [|key: &mut ObjectKey| key.name = "other".into(), |key: &mut ObjectKey| key.namespace = "m".into()]
    {
        let mut other = shown(true, &["example.com/hold"], None);
        change(&mut other.observed.key);
        let responses = [
            Some(Response::of(200, Body::Object(other))),
            Some(Response::of(404, Body::Status(status("NotFound", "", "pods", "web")))),
        ];
        let (log, performed) = converse(delete, &responses);
        assert_eq!((log.len(), performed.outcome), (2, Outcome::Absent));
    }
}

/// A finalizer is removed by a patch of what was just read; conflicts and momentary failures are tried again after a pause.
#[test]
fn a_finalizer_is_removed_from_what_was_just_read() {
    let request = &requests()[3];
    let own = "foregroundDeletion";
    let object = |deleting, finalizers: &[&str]| {
        Some(Response::of(200, Body::Object(shown(deleting, finalizers, None))))
    };
    let refusal = |code| Some(Response::of(code, Body::Status(status("", "", "pods", "web"))));
    let absent = || Some(Response::of(404, Body::Status(status("NotFound", "", "pods", "web"))));
    let patch = |finalizers: &str| {
        format!(
            "MergePatch {{\"metadata\":{{\"finalizers\":{finalizers},\"resourceVersion\":\"7\",\"uid\":\"{UID}\"}}}}"
        )
    };
    let get = || "Get".to_owned();
    let applied =
        |deleting, finalizers: &[&str]| Outcome::Applied(Some(shown(deleting, finalizers, None).observed));
    let pauses: Vec<String> = FINALIZER_PAUSES.iter().map(|pause| format!("pause {pause:?}")).collect();
    let mut another = shown(true, &[own], None);
    another.observed.uid = Uid::new(OTHER);
    let another = || Some(Response::of(200, Body::Object(another.clone())));
    let refused = |code| Outcome::Refused { code, message: "why".to_owned() };
    let rows = [
        // The object is gone after its last finalizer, so the response shows nothing of use.
        (vec![object(true, &[own]), object(true, &[])], vec![get(), patch("null")], Outcome::Applied(None)),
        (
            vec![object(true, &["a/b", own, "c/d"]), object(true, &["a/b", "c/d"])],
            vec![get(), patch("[\"a/b\",\"c/d\"]")],
            applied(true, &["a/b", "c/d"]),
        ),
        (vec![object(false, &[own]), object(false, &[])], vec![get(), patch("null")], applied(false, &[])),
        (vec![object(true, &["a/b"])], vec![get()], applied(true, &["a/b"])),
        (vec![absent()], vec![get()], Outcome::Absent),
        (vec![another()], vec![get()], Outcome::Absent),
        (vec![refusal(403)], vec![get()], refused(403)),
        (
            vec![object(true, &[own]), refusal(409), object(true, &[own]), object(true, &[])],
            vec![get(), patch("null"), pauses[0].clone(), get(), patch("null")],
            Outcome::Applied(None),
        ),
        (vec![refusal(500), absent()], vec![get(), pauses[0].clone(), get()], Outcome::Absent),
        // Refused as invalid: the object may be another one now, which a read shows.
        (
            vec![object(true, &[own]), refusal(422), another()],
            vec![get(), patch("null"), get()],
            Outcome::Absent,
        ),
        (
            vec![object(true, &[own]), refusal(422), absent()],
            vec![get(), patch("null"), get()],
            Outcome::Absent,
        ),
        (
            vec![object(true, &[own]), refusal(422), object(true, &[own])],
            vec![get(), patch("null"), get()],
            refused(422),
        ),
        (vec![object(true, &[own]), refusal(422), None], vec![get(), patch("null"), get()], refused(422)),
        (
            vec![object(true, &[own]), refusal(422), refusal(503)],
            vec![get(), patch("null"), get()],
            refused(422),
        ),
    ];
    for (number, (responses, calls, outcome)) in rows.into_iter().enumerate() {
        let (log, performed) = converse(request, &responses);
        assert_eq!((log, performed.outcome), (calls, outcome), "{number}: {responses:?}");
    }
    // It is tried once after each pause.
    let responses: Vec<_> = (0..=FINALIZER_PAUSES.len()).map(|_| refusal(409)).collect();
    let (log, performed) = converse(request, &responses);
    let made: Vec<&String> = log.iter().filter(|line| line.starts_with("pause")).collect();
    assert_eq!((made, performed.outcome), (pauses.iter().collect(), Outcome::Conflict));
    // A server that is busy is not asked again at once.
    let (log, performed) = converse(request, &[refusal(503)]);
    assert_eq!((log.len(), performed.signal), (1, Signal::Busy(None)));
    let (log, performed) = converse(request, &[None]);
    assert_eq!((log.len(), performed.signal), (1, Signal::Busy(None)));
}

/// After a change whose response cannot be parsed, a read shows at most that the object is gone.
#[test]
fn a_change_with_an_unreadable_response_is_looked_up() {
    let delete = &requests()[1];
    let page = || Some(Response::of(200, Body::Text));
    let object = || Some(Response::of(200, Body::Object(shown(false, &[], None))));
    let absent = || Some(Response::of(404, Body::Status(status("NotFound", "", "pods", "web"))));
    let busy = || Some(Response::of(503, Body::Text));
    for (read, outcome) in [
        (object(), failed(UNREADABLE)),
        (page(), failed(UNREADABLE)),
        (busy(), failed(UNREADABLE)),
        (None, failed(UNREADABLE)),
        (absent(), Outcome::Absent),
    ] {
        let (log, performed) = converse(delete, &[page(), read.clone()]);
        let expected = PerformedRequest { outcome, signal: Signal::Answered, round_trips: 2 };
        assert_eq!((log[1].as_str(), performed), ("Get", expected), "{read:?}");
    }
}

/// The body of each request, and that nothing is sent that could not be conditional.
#[allow(clippy::result_large_err, reason = "one outcome for each row")]
#[test]
fn each_request_is_sent_as_one_call() {
    let (uid, version) = (Uid::new(UID), ResourceVersion(5));
    let guarded = |change, resource_version| Request::Guarded {
        key: key(),
        uid: uid.clone(),
        resource_version,
        change,
    };
    let delete =
        |resource_version, policy| Request::Delete { key: key(), uid: uid.clone(), resource_version, policy };
    let owners = |resource_version, names: &[&str]| Request::SetOwners {
        key: key(),
        uid: uid.clone(),
        resource_version,
        remaining: names
            .iter()
            .map(|name| OwnerReference {
                coordinates: gc_types::Coordinates {
                    api_version: "v1".into(),
                    kind: "Secret".into(),
                    name: (*name).into(),
                    uid: Uid::new(OTHER),
                },
                controller: Some(true),
                block_owner_deletion: None,
            })
            .collect(),
    };
    let guards = json!({"uid": UID, "resourceVersion": "5"});
    let metadata = |field: &str, value: Value| {
        let mut metadata = guards.clone();
        metadata[field] = value;
        json!({ "metadata": metadata })
    };
    let options = |preconditions: Value, policy: &str| json!({"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions, "propagationPolicy": policy});
    let reference =
        json!([{"apiVersion": "v1", "kind": "Secret", "name": "a", "uid": OTHER, "controller": true}]);
    let forced = json!({
        "kind": "DeleteOptions", "apiVersion": "v1", "gracePeriodSeconds": 0, "preconditions": guards,
    });
    let merged = json!({"spec": {"x": 1}, "metadata": {"labels": {}, "uid": UID, "resourceVersion": "5"}});
    let call = |verb, subresource, body| Ok(Call { verb, subresource, body });
    let unguarded = || {
        let message = "its resourceVersion is not a number, so that the change cannot be guarded".to_owned();
        Err(Outcome::Refused { code: 0, message })
    };
    let rows = [
        (Request::Read { key: key() }, call(Verb::Get, "", Value::Null)),
        (
            delete(Some(version), PropagationPolicy::Foreground),
            call(Verb::Delete, "", options(guards.clone(), "Foreground")),
        ),
        (
            delete(None, PropagationPolicy::Orphan),
            call(Verb::Delete, "", options(json!({"uid": UID}), "Orphan")),
        ),
        (
            delete(Some(ResourceVersion::UNKNOWN), PropagationPolicy::Background),
            call(Verb::Delete, "", options(json!({"uid": UID}), "Background")),
        ),
        (owners(version, &[]), call(Verb::MergePatch, "", metadata("ownerReferences", Value::Null))),
        (owners(version, &["a"]), call(Verb::MergePatch, "", metadata("ownerReferences", reference))),
        (owners(ResourceVersion::UNKNOWN, &[]), unguarded()),
        (guarded(Change::ForceDelete, version), call(Verb::Delete, "", forced)),
        (guarded(Change::ForceDelete, ResourceVersion::UNKNOWN), unguarded()),
        (
            guarded(Change::Finalizers(vec!["a/b".into()]), version),
            call(Verb::MergePatch, "", metadata("finalizers", json!(["a/b"]))),
        ),
        (
            guarded(Change::Finalizers(Vec::new()), version),
            call(Verb::MergePatch, "", metadata("finalizers", Value::Null)),
        ),
        (
            guarded(Change::Merge(r#"{"spec":{"x":1},"metadata":{"labels":{}}}"#.into()), version),
            call(Verb::MergePatch, "", merged),
        ),
        (
            guarded(Change::Merge("[]".into()), version),
            Err(failed("the patch to be sent is not a JSON object")),
        ),
        (
            guarded(Change::Status(r#"{"phase":"x"}"#.into()), version),
            call(Verb::StrategicPatch, "status", json!({"metadata": guards, "status": {"phase": "x"}})),
        ),
        (
            guarded(Change::MergeStatus(r#"{"phase":"x"}"#.into()), version),
            call(Verb::MergePatch, "status", json!({"metadata": guards, "status": {"phase": "x"}})),
        ),
        (guarded(Change::Status("{".into()), version), Err(failed("the status to be written is not JSON"))),
        (
            Request::Barrier { resource: ResourceId(1), namespace: None, at_least: version },
            Err(failed("not a request about one object")),
        ),
    ];
    for (request, expected) in rows {
        let resource = resource();
        let sent = match Exchange::begin(&request, &resource).1 {
            Step::Send(call) => Ok(call),
            Step::Done(performed) => Err(performed.outcome),
            Step::Pause(pause) => panic!("{request:?} begins with a pause of {pause:?}"),
        };
        assert_eq!(sent, expected, "{request:?}");
    }
}

/// Storage and machines know no preconditions, so the object must be what was decided on, in a version that is known.
#[test]
fn an_action_outside_is_refused_unless_its_object_is_as_decided_on() {
    let decided = ResourceVersion(7);
    let of = |uid: &str| {
        let observed = shown(false, &[], None).observed;
        Outcome::Found(ObservedObject { uid: Uid::new(uid), ..observed })
    };
    for (read, version, refusal) in [
        (of(UID), decided, None),
        (of(UID), ResourceVersion(6), Some(Outcome::Conflict)),
        (of(UID), ResourceVersion::UNKNOWN, Some(Outcome::Conflict)),
        (of(OTHER), decided, Some(Outcome::Absent)),
        (of(OTHER), ResourceVersion::UNKNOWN, Some(Outcome::Absent)),
        (Outcome::Absent, decided, Some(Outcome::Absent)),
        (failed("x"), decided, Some(failed("x"))),
    ] {
        assert_eq!(refuses_outside(&read, &Uid::new(UID), version), refusal, "{read:?} {version:?}");
    }
    let unknown =
        ObservedObject { resource_version: ResourceVersion::UNKNOWN, ..shown(false, &[], None).observed };
    let refusal = refuses_outside(&Outcome::Found(unknown), &Uid::new(UID), ResourceVersion::UNKNOWN);
    assert_eq!(refusal, Some(Outcome::Conflict), "two versions that are not known are not the same");
}

#[test]
fn an_action_outside_needs_the_very_object_that_was_decided_about() {
    let found = Outcome::Found(ServerAnswer::Object.object().unwrap().observed);
    let other = Uid::new(OTHER);
    for (read, uid, version, expected) in [
        (&found, Uid::new(UID), ResourceVersion(7), None),
        (&found, Uid::new(UID), ResourceVersion(6), Some(Outcome::Conflict)),
        (&found, Uid::new(UID), ResourceVersion::UNKNOWN, Some(Outcome::Conflict)),
        (&found, other.clone(), ResourceVersion(7), Some(Outcome::Absent)),
        (&found, other, ResourceVersion(6), Some(Outcome::Absent)),
        (&Outcome::Absent, Uid::new(UID), ResourceVersion(7), Some(Outcome::Absent)),
        (&Outcome::NotServed, Uid::new(UID), ResourceVersion(7), Some(Outcome::NotServed)),
    ] {
        assert_eq!(refuses_outside(read, &uid, version), expected, "{read:?} for {uid} in {version:?}");
    }
    let unknown = ResourceVersion::UNKNOWN;
    let mut unversioned = ServerAnswer::Object.object().unwrap().observed;
    unversioned.resource_version = unknown;
    let read = Outcome::Found(unversioned);
    assert_eq!(
        refuses_outside(&read, &Uid::new(UID), unknown),
        Some(Outcome::Conflict),
        "no version proves nothing"
    );
}
