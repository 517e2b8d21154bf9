//! CertificateSigningRequests: reads the request, and signs with the server's own authority, by the rules of
//! `gc_workloads::certificates`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use gc_apiserver::{
    CertificateAuthority, CertificateRequest, CertificateTerms, CertificateUsage, SigningError,
};
use gc_kube::ApiClient;
use gc_workloads::certificates::{self, Contents};
use gc_workloads::plan::{Action, FailureReason};
use gc_workloads::runtime::Answer;
use http::header::{ACCEPT, CONTENT_TYPE};
use http::{Method, Request};
use http_body_util::Full;
use serde_json::Value;

use super::requests::{JSON, unavailable};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/subjectaccessreviews";

/// Returns an action with the object to write. `Err` is the answer to an action that writes nothing.
pub(super) async fn prepare(
    client: &ApiClient,
    authority: &CertificateAuthority,
    action: Action,
) -> Result<Action, Answer> {
    match action {
        Action::ApproveCertificate { key, object } => {
            let object = approved(client, object).await?;
            Ok(Action::ApproveCertificate { key, object })
        }
        Action::SignCertificate { key, object, now } => {
            let object = signed(authority, object, now).map_err(|error| refused(&error.to_string()))?;
            Ok(Action::SignCertificate { key, object, now })
        }
        other => Ok(other),
    }
}

fn refused(message: &str) -> Answer {
    Answer::Failed { reason: FailureReason::Refused, message: message.to_owned() }
}

fn read(object: &Value) -> Result<CertificateRequest, SigningError> {
    let pem = BASE64.decode(object["spec"]["request"].as_str().unwrap_or_default());
    CertificateRequest::from_pem(&pem.unwrap_or_default())
}

fn contents(request: &CertificateRequest) -> Contents {
    Contents {
        common_name: request.common_name.clone(),
        organizations: request.organizations.clone(),
        dns_names: request.dns_names.len(),
        ip_addresses: request.ip_addresses.len(),
        email_addresses: request.email_addresses.len(),
        uris: request.uris.len(),
    }
}

/// Returns the request with its approval, if its author has a permission for that.
async fn approved(client: &ApiClient, object: Value) -> Result<Value, Answer> {
    let request = read(&object).map_err(|error| refused(&error.to_string()))?;
    let permissions = certificates::permissions(&object, &contents(&request));
    let is_known = !permissions.is_empty();
    for permission in permissions {
        if is_allowed(client, &certificates::review(&object, permission)).await? {
            return Ok(certificates::approved(&object, permission));
        }
    }
    // A request that no kubelet makes waits for a person; a permission may still be granted.
    Err(if is_known { refused("who asks may not have it approved") } else { Answer::Done(None) })
}

async fn is_allowed(client: &ApiClient, review: &Value) -> Result<bool, Answer> {
    let request = Request::builder()
        .method(Method::POST)
        .uri(REVIEWS)
        .header(ACCEPT, JSON)
        .header(CONTENT_TYPE, JSON)
        .body(Full::new(Bytes::from(review.to_string())))
        .map_err(|error| unavailable(&error.to_string()))?;
    let answer = client.call(request).await.map_err(|error| unavailable(&error.to_string()))?;
    let status = answer.head.status;
    if !status.is_success() {
        return Err(unavailable(&format!("the server answered {status} to a SubjectAccessReview")));
    }
    let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    Ok(body["status"]["allowed"] == true)
}

/// Returns the request with its certificate, or with the reason why it gets none.
fn signed(authority: &CertificateAuthority, mut object: Value, now: i64) -> Result<Value, SigningError> {
    let request = read(&object)?;
    if let Some(refusal) = certificates::refusal(&object, &contents(&request)) {
        return Ok(certificates::failed(&object, &refusal, now));
    }
    let at = |milliseconds: i64| {
        jiff::Timestamp::from_millisecond(milliseconds).map_err(|_| SigningError::Expired)
    };
    let (not_before, not_after) = certificates::validity(&object, now);
    let usages = certificates::usages(&object).filter_map(|usage| match usage {
        "digital signature" => Some(CertificateUsage::DigitalSignature),
        "key encipherment" => Some(CertificateUsage::KeyEncipherment),
        "server auth" => Some(CertificateUsage::ServerAuth),
        "client auth" => Some(CertificateUsage::ClientAuth),
        // The rules accept no other usage.
        _ => None,
    });
    let terms =
        CertificateTerms { usages: usages.collect(), not_before: at(not_before)?, not_after: at(not_after)? };
    let certificate = authority.sign(&request, &terms)?;
    object["status"]["certificate"] = BASE64.encode(certificate).into();
    Ok(object)
}
