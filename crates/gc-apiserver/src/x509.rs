//! Certificates: what they say, and whether they are believed, by the rules of Go's `crypto/x509`.
//!
//! Clients and servers of Kubernetes are written in Go, and certificates that work with kube-apiserver have to work here: a
//! server's own certificate as the root that it is checked by, roots of version 1, roots that have expired. `webpki` decides
//! several of these otherwise. Documents are parsed by the crate `x509-cert`, and signatures are verified by *ring*; what is
//! decided here is which certificates form a chain.

mod certificate;
mod chain;
mod constraints;
mod handshake;
mod hostname;
mod request;
#[cfg(test)]
mod tests;

pub(crate) use certificate::Certificate;
pub(crate) use chain::{Pool, Purpose, Refusal, check_dates};
pub(crate) use handshake::{verify_tls12, verify_tls13};
pub(crate) use hostname::check_host;
pub(crate) use request::verify_request;

/// Returns whether one of the algorithms that *ring* has verifies a signature; none if it has no such algorithm. Algorithms are
/// the contents of their elements.
pub(crate) fn verifies(
    (key_algorithm, key): (&[u8], &[u8]),
    algorithm: &[u8],
    signed: &[u8],
    signature: &[u8],
) -> Option<bool> {
    let provider = rustls::crypto::ring::default_provider();
    let known = provider.signature_verification_algorithms.all.iter().filter(|known| {
        known.public_key_alg_id().as_ref() == key_algorithm && known.signature_alg_id().as_ref() == algorithm
    });
    known
        .map(|known| known.verify_signature(key, signed, signature).is_ok())
        .reduce(|one, other| one || other)
}
