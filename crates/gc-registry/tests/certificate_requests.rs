//! Tests certificate requests whose signature does not match their key.
#![allow(clippy::unwrap_used)] // A test that fails here has failed.

mod world;

use gc_registry::x509::RequestSignature;
use serde_json::json;
use world::World;

/// Regression test: the signature of a request was only verified by its signer.
#[test]
fn a_request_without_its_own_signature_is_neither_stored_nor_approved() {
    const KIND: &str = "certificates.k8s.io/v1/certificatesigningrequests";
    let encoded =
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, include_str!("requests/dev.csr"));
    let asked = |name: &str| {
        let spec = json!({"request": encoded, "signerName": "example.com/a", "usages": ["client auth"]});
        json!({"metadata": {"name": name}, "spec": spec})
    };
    let approval =
        || json!({"status": {"conditions": [{"type": "Approved", "status": "True", "reason": "test"}]}});
    let approve = |world: &World| {
        let approved = world.merge(&format!("{KIND}/approval"), "/c", approval());
        approved.map_err(|error| (error.code, error.message))
    };
    let unverifiable = World::default();
    unverifiable.registry.verify_requests_by(|_| RequestSignature::Unverifiable("a test"));
    unverifiable.create(KIND, asked("c")).unwrap();
    approve(&unverifiable).unwrap();

    let world = World::default();
    // As stored by a server without verification.
    world.create(KIND, asked("c")).unwrap();
    world.registry.verify_requests_by(|_| RequestSignature::Refused("x509: not theirs".to_owned()));
    let shown = format!("spec.request: Invalid value: \"{encoded}\": x509: not theirs");
    let refused = world.create(KIND, asked("d")).unwrap_err();
    assert!(refused.code == 422 && refused.message.ends_with(&shown), "{}", refused.message);
    let (code, message) = approve(&world).unwrap_err();
    assert!(code == 422 && message.ends_with(&shown), "{code} {message}");
}
