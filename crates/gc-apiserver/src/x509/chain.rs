//! Chains from a presented certificate to a trusted one.

use std::fmt;

use x509_cert::der::asn1::ObjectIdentifier;

use super::Certificate;

/// Maximum number of signatures checked per verification, which limits the cost of a chain.
const MOST_CHECKS: usize = 100;

const ANY_PURPOSE: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.37.0");
const SERVER_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.1");
const CLIENT_AUTH: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.3.2");

/// Purpose that a certificate is presented for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// Identifies a server to its clients.
    Server,
    /// Identifies a client to a server.
    Client,
}

impl Purpose {
    fn identifier(self) -> ObjectIdentifier {
        match self {
            Self::Server => SERVER_AUTH,
            Self::Client => CLIENT_AUTH,
        }
    }
}

/// Reason why a certificate is not trusted, in Go's wording.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// No chain leads to a trusted certificate.
    #[error("certificate signed by unknown authority{}", shown_hint(.0.as_deref()))]
    UnknownAuthority(Option<Box<(Refusal, String)>>),
    /// Outside its period of validity.
    #[error("certificate has expired or is not yet valid: current time {} is {} {}", Time(*.now), if *.is_early { "before" } else { "after" }, Time(*.bound))]
    Expired {
        /// Current time, in seconds since 1970.
        now: i64,
        /// True if the period is still to come.
        is_early: bool,
        /// Violated bound of the period.
        bound: i64,
    },
    /// An intermediate certificate does not belong to an authority.
    #[error("certificate is not authorized to sign other certificates")]
    NotAuthority,
    /// The key of the issuing certificate may not sign certificates.
    #[error("invalid signature: parent certificate cannot sign this kind of certificate")]
    CannotSign,
    /// The signature was made with another key, or by an unknown algorithm.
    #[error("{0} verification failure")]
    Signature(&'static str),
    /// The chain has more certificates than one of them permits.
    #[error("too many intermediates for path length constraint")]
    TooManyIntermediates,
    /// A critical extension is not understood.
    #[error("unhandled critical extension")]
    CriticalExtension,
    /// An authority may not sign for a name in the certificate.
    #[error("a root or intermediate certificate is not authorized to sign for this name: {0}")]
    Constrained(String),
    /// Issued for another purpose.
    #[error("certificate specifies an incompatible key usage")]
    Purpose,
    /// Issued for another host.
    #[error("{0}")]
    Host(String),
    /// There were too many certificates to try.
    #[error("signature check attempts limit reached while verifying certificate chain")]
    TooManyChecks,
}

fn shown_hint(hint: Option<&(Refusal, String)>) -> String {
    let Some((why, name)) = hint else { return String::new() };
    let why = format!("x509: {why}");
    format!(" (possibly because of {why:?} while trying to verify candidate authority certificate {name:?})")
}

/// A time in Go's format.
struct Time(i64);

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_second(self.0) {
            Ok(time) => time.fmt(f),
            Err(_) => self.0.fmt(f),
        }
    }
}

/// Trusted certificates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool(Vec<Certificate>);

/// Position of a certificate in a chain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChainPosition {
    Leaf,
    Intermediate,
    Root,
}

impl Pool {
    pub(crate) fn new(certificates: Vec<Certificate>) -> Self {
        Self(certificates)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns, for each certificate, the last second before it becomes valid, and the last one of its validity.
    pub(crate) fn last_moments(&self) -> impl Iterator<Item = i64> {
        self.0.iter().flat_map(Certificate::last_moments)
    }

    /// Returns the subjects of the certificates in DER.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &[u8]> {
        self.0.iter().map(|known| &*known.subject_der)
    }

    /// Checks that a certificate is trusted at a time: a chain leads from it, through some of the others, to a certificate in the
    /// pool, and all of them permit the purpose. A certificate that is itself in the pool needs no other.
    pub(crate) fn check(
        &self,
        own: &Certificate,
        others: &[Certificate],
        purpose: Purpose,
        now: i64,
    ) -> Result<(), Refusal> {
        is_valid(own, ChainPosition::Leaf, &[], now)?;
        if self.0.contains(own) {
            return if is_for(&[own], purpose) { Ok(()) } else { Err(Refusal::Purpose) };
        }
        let mut search = Search { pool: self, others, purpose, now, checks: 0, has_unfit: false };
        match search.extend(&[own]) {
            Ok(()) => Ok(()),
            Err(_) if search.has_unfit => Err(Refusal::Purpose),
            Err(why) => Err(why),
        }
    }
}

/// A search for a chain, of bounded cost.
struct Search<'a> {
    pool: &'a Pool,
    others: &'a [Certificate],
    purpose: Purpose,
    now: i64,
    checks: usize,
    /// True if a chain was found, but for another purpose.
    has_unfit: bool,
}

impl<'a> Search<'a> {
    /// Extends a chain towards the pool.
    fn extend(&mut self, chain: &[&'a Certificate]) -> Result<(), Refusal> {
        let Some(last) = chain.last() else { return Err(Refusal::UnknownAuthority(None)) };
        let (mut error, mut hint) = (None, None);
        let roots = parents(&self.pool.0, last).map(|candidate| (ChainPosition::Root, candidate));
        let others = parents(self.others, last).map(|candidate| (ChainPosition::Intermediate, candidate));
        for (place, candidate) in roots.chain(others).collect::<Vec<_>>() {
            if self.checks >= MOST_CHECKS {
                return Err(Refusal::TooManyChecks);
            }
            self.checks += 1;
            if chain.iter().any(|present| is_same(present, candidate)) {
                continue;
            }
            if let Err(why) = check_signature(last, candidate) {
                hint.get_or_insert_with(|| Box::new((why, shown_name(candidate))));
                continue;
            }
            if let Err(why) = is_valid(candidate, place, chain, self.now) {
                hint.get_or_insert_with(|| Box::new((why.clone(), shown_name(candidate))));
                error = Some(why);
                continue;
            }
            let longer = [chain, &[candidate]].concat();
            if place == ChainPosition::Intermediate {
                match self.extend(&longer) {
                    Ok(()) => return Ok(()),
                    Err(why) => error = Some(why),
                }
            } else if is_for(&longer, self.purpose) {
                return Ok(());
            } else {
                self.has_unfit = true;
            }
        }
        Err(error.unwrap_or(Refusal::UnknownAuthority(hint)))
    }
}

/// Returns the candidates for having signed a certificate, most likely first.
fn parents<'a>(
    candidates: &'a [Certificate],
    child: &Certificate,
) -> impl Iterator<Item = &'a Certificate> + use<'a> {
    let mut found: Vec<&Certificate> =
        candidates.iter().filter(|candidate| candidate.subject_der == child.issuer).collect();
    found.sort_by_key(|candidate| match (&candidate.key_identifier, &child.authority_key_identifier) {
        (Some(own), Some(wanted)) if own == wanted => 0,
        (Some(_), Some(_)) => 2,
        _ => 1,
    });
    found.into_iter()
}

/// Reports whether two certificates have the same subject, key and names.
fn is_same(one: &Certificate, other: &Certificate) -> bool {
    one.subject_der == other.subject_der && one.public_key == other.public_key && one.names == other.names
}

fn check_signature(child: &Certificate, parent: &Certificate) -> Result<(), Refusal> {
    let is_authority = match parent.basic {
        Some(basic) => basic.is_authority,
        // Versions before 3 have no such extension.
        None => parent.version < 3,
    };
    if !is_authority || parent.signs_certificates == Some(false) {
        return Err(Refusal::CannotSign);
    }
    if child.is_signed_by(parent) { Ok(()) } else { Err(Refusal::Signature(parent.key_kind())) }
}

/// Checks a certificate by itself: no critical extension is unknown, and it is valid at this time.
pub(crate) fn check_dates(certificate: &Certificate, now: i64) -> Result<(), Refusal> {
    if certificate.has_unknown_critical {
        return Err(Refusal::CriticalExtension);
    }
    if now < certificate.not_before {
        return Err(Refusal::Expired { now, is_early: true, bound: certificate.not_before });
    }
    if now > certificate.not_after {
        return Err(Refusal::Expired { now, is_early: false, bound: certificate.not_after });
    }
    Ok(())
}

/// Checks that a certificate can take a position above this chain.
fn is_valid(
    certificate: &Certificate,
    place: ChainPosition,
    chain: &[&Certificate],
    now: i64,
) -> Result<(), Refusal> {
    check_dates(certificate, now)?;
    if let (Some(constraints), true) = (&certificate.constraints, place != ChainPosition::Leaf) {
        for names in chain.iter().filter_map(|below| below.names.as_ref()) {
            constraints.check(names).map_err(Refusal::Constrained)?;
        }
    }
    if place == ChainPosition::Intermediate && !certificate.basic.is_some_and(|basic| basic.is_authority) {
        return Err(Refusal::NotAuthority);
    }
    let path_length =
        certificate.basic.and_then(|basic| basic.path_length).filter(|_| place != ChainPosition::Leaf);
    if path_length.is_some_and(|most| chain.len() - 1 > usize::from(most)) {
        return Err(Refusal::TooManyIntermediates);
    }
    Ok(())
}

/// Reports whether every certificate of a chain permits a purpose.
fn is_for(chain: &[&Certificate], purpose: Purpose) -> bool {
    let wanted = purpose.identifier();
    chain
        .iter()
        .filter_map(|certificate| certificate.purposes.as_ref())
        .all(|purposes| purposes.iter().any(|permitted| *permitted == ANY_PURPOSE || *permitted == wanted))
}

fn shown_name(certificate: &Certificate) -> String {
    let subject = &certificate.subject;
    let names = std::iter::once(&subject.common_name).chain(&subject.organizations);
    names.into_iter().find(|name| !name.is_empty()).cloned().unwrap_or_default()
}
