#![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use gc_kube::breaker::{Breaker, BreakerOptions, SharedBreaker};
use http::{Request, Response};
use http_body_util::{BodyExt as _, Full};

use super::*;

/// Answers about the Lease of a shard as a server does, and about the Lease with the orders only while `is_read` is true.
async fn answered(request: Request<Full<Bytes>>, is_read: bool) -> Response<Full<Bytes>> {
    let (head, body) = request.into_parts();
    let sent = body.collect().await.unwrap().to_bytes();
    let path = head.uri.path();
    let (code, body) = match (head.method, path.ends_with("/orders")) {
        (Method::GET, true) if is_read => {
            let metadata = json!({"name": "orders", "namespace": "n", "uid": "o", "resourceVersion": "1"});
            (200, Bytes::from(json!({"kind": "Lease", "metadata": metadata}).to_string()))
        }
        (_, true) => (503, Bytes::from("the store does not answer")),
        (Method::GET, false) => {
            let details =
                json!({"name": "orders-shard-1-of-2", "group": "coordination.k8s.io", "kind": "leases"});
            let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure",
                                "reason": "NotFound", "code": 404, "details": details});
            (404, Bytes::from(status.to_string()))
        }
        _ => (200, sent),
    };
    let response = Response::builder().status(code).header("content-type", "application/json");
    response.body(Full::new(body)).unwrap()
}

/// Regression test: a shard whose read of the orders had failed once led from its next renewal, and so through a pause.
#[tokio::test]
async fn a_shard_does_not_lead_before_it_has_read_the_orders() {
    let is_read = Arc::new(AtomicBool::new(false));
    let reads = Arc::clone(&is_read);
    let client = ApiClient::in_process(move |request| answered(request, reads.load(Ordering::Relaxed)));
    let named = |name: &str| LeaseName { namespace: "n".into(), name: name.into() };
    let seconds = Duration::from_secs;
    let longest =
        Timing { lease_duration: seconds(15), renew_deadline: seconds(10), retry_period: seconds(2) };
    let options = LeaseOptions { lease: named("orders-shard-1-of-2"), longest, shortest: seconds(15) };
    let leadership = Leadership::none();
    let orders =
        Control::new(leadership.clone(), SharedBreaker::new(Breaker::new(BreakerOptions::default())));
    let mut candidate =
        Candidate::new(client, options, "a".into(), Control::without_orders(), leadership.clone())
            .following(orders, named("orders"));
    for round in 0..3 {
        let failed = candidate.round().await.unwrap();
        assert!(matches!(&failed, Round::Failed(why) if why.contains("orders")), "{round}: {failed:?}");
        assert!(!leadership.leads() && !leadership.may_act(), "{round}");
    }
    is_read.store(true, Ordering::Relaxed);
    assert_eq!(candidate.round().await.unwrap(), Round::Holds);
    assert!(leadership.leads());
}
