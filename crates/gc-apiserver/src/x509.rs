//! Certificates: parses them and decides whether they are trusted, by the rules of Go's `crypto/x509`.
//!
//! Clients and servers of Kubernetes are written in Go, and certificates that work with kube-apiserver must work here: a server's
//! own certificate used as its root, roots of version 1, expired roots. `webpki` decides several of these cases differently. The
//! crate `x509-cert` parses documents, *ring* verifies signatures, and this module decides which certificates form a chain.

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

/// Reports whether a signature is valid by one of *ring*'s algorithms; `None` if *ring* does not support the algorithm. Algorithms
/// are given as the contents of their elements.
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
