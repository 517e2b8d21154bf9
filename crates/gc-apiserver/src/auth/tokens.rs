//! Service-account tokens: JSON web tokens, signed with the key in the data directory or with a given one.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::token_keys::{PublicKey, SigningKey};

/// Default issuer of tokens.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Maximum length of a token that is parsed; those issued here have less than 1.5 KiB.
const MAXIMUM_TOKEN_LENGTH: usize = 16 * 1024;

/// Claims of a service account token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Audiences.
    pub(crate) aud: Vec<String>,
    /// Expiry, in seconds since the epoch.
    pub(crate) exp: i64,
    /// Issued at.
    pub(crate) iat: i64,
    /// Issuer.
    pub(crate) iss: String,
    /// Id of this token.
    pub(crate) jti: String,
    /// Objects that the token is bound to.
    #[serde(rename = "kubernetes.io")]
    pub(crate) kubernetes: KubernetesClaims,
    /// Not before.
    pub(crate) nbf: i64,
    /// `system:serviceaccount:NAMESPACE:NAME`
    pub(crate) sub: String,
}

/// The private part of [`Claims`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KubernetesClaims {
    /// Namespace of the account.
    pub(crate) namespace: String,
    /// The account.
    pub(crate) serviceaccount: Reference,
    /// The pod that the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    /// The secret that the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    /// The node that the token is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) node: Option<Reference>,
}

/// An object by name and UID.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Reference {
    /// Name.
    pub(crate) name: String,
    /// UID.
    pub(crate) uid: String,
}

/// Reason why a token is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not issued by this server.
    #[error("not a service-account token of this server")]
    NotOurs,
    /// The signature does not match.
    #[error("the signature does not verify")]
    Signature,
    /// Expired, or not valid yet.
    #[error("the token has expired or is not valid yet")]
    Expired,
    /// Meant for another audience.
    #[error("the token is for another audience")]
    Audience,
}

/// Issuers, audiences and lifetimes of tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSettings {
    /// Accepted issuers; the first one issues the tokens here.
    pub issuers: Vec<String>,
    /// Audiences of this server; the issuers if empty.
    pub audiences: Vec<String>,
    /// Published location of the key set, if not on this server.
    pub key_set_uri: Option<String>,
    /// Maximum lifetime of issued tokens, in seconds.
    pub longest_life_seconds: Option<i64>,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self {
            issuers: vec![ISSUER.to_owned()],
            audiences: Vec::new(),
            key_set_uri: None,
            longest_life_seconds: None,
        }
    }
}

/// Issues and verifies tokens.
pub(crate) struct TokenSigner {
    key: SigningKey,
    /// Keys whose tokens are accepted.
    keys: Vec<PublicKey>,
    random: SystemRandom,
    settings: TokenSettings,
}

impl TokenSigner {
    /// Creates a signer that signs with `key` and accepts the tokens of all `keys`.
    pub(crate) fn new(key: SigningKey, keys: Vec<PublicKey>, mut settings: TokenSettings) -> Self {
        if settings.issuers.is_empty() {
            settings.issuers.push(ISSUER.to_owned());
        }
        if settings.audiences.is_empty() {
            settings.audiences.clone_from(&settings.issuers);
        }
        Self { key, keys, random: SystemRandom::new(), settings }
    }

    /// Returns the issuer of new tokens.
    pub(crate) fn issuer(&self) -> &str {
        self.settings.issuers.first().map_or(ISSUER, String::as_str)
    }

    /// Returns the audiences that this server accepts.
    pub(crate) fn audiences(&self) -> &[String] {
        &self.settings.audiences
    }

    /// Returns the published location of the key set, if it is not on this server.
    pub(crate) fn key_set_uri(&self) -> Option<&str> {
        self.settings.key_set_uri.as_deref()
    }

    /// Caps a requested lifetime, in seconds.
    pub(crate) fn life_seconds(&self, wanted: i64) -> i64 {
        self.settings.longest_life_seconds.map_or(wanted, |longest| wanted.min(longest))
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, String> {
        let header = json!({"alg": self.key.public.algorithm(), "kid": self.key.public.identifier});
        let claims = serde_json::to_vec(claims).map_err(|error| error.to_string())?;
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let signature = self.key.sign(signed.as_bytes(), &self.random).ok_or("signing failed")?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
    }

    /// Verifies signature, issuer, time and audience (any one of `audiences`). The caller must check that the account, and the
    /// object that the token is bound to, still exist.
    pub(crate) fn verify(&self, token: &str, now: i64, audiences: &[String]) -> Result<Claims, TokenError> {
        if token.len() > MAXIMUM_TOKEN_LENGTH {
            return Err(TokenError::NotOurs);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::NotOurs);
        let header: Value = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::NotOurs)?;
        let algorithm = header.get("alg").and_then(Value::as_str).unwrap_or_default();
        let mut keys = self.keys.iter().filter(|key| key.algorithm() == algorithm).peekable();
        keys.peek().ok_or(TokenError::NotOurs)?;
        let signature = decode(signature)?;
        if !keys.any(|key| key.verifies(signed.as_bytes(), &signature)) {
            return Err(TokenError::Signature);
        }
        let claims: Claims = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::NotOurs)?;
        if !self.settings.issuers.contains(&claims.iss) {
            return Err(TokenError::NotOurs);
        }
        if now >= claims.exp || now < claims.nbf {
            return Err(TokenError::Expired);
        }
        if !claims.aud.iter().any(|audience| audiences.contains(audience)) {
            return Err(TokenError::Audience);
        }
        Ok(claims)
    }

    /// Returns the key set for `/openid/v1/jwks`.
    pub(crate) fn key_set(&self) -> Value {
        json!({"keys": self.keys.iter().map(PublicKey::member).collect::<Vec<_>>()})
    }

    /// Returns the algorithms of the keys, without duplicates.
    pub(crate) fn algorithms(&self) -> Vec<&'static str> {
        let mut found: Vec<_> = self.keys.iter().map(PublicKey::algorithm).collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn signer() -> TokenSigner {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        let key = SigningKey::from_pkcs8(key.serialized_der()).unwrap();
        let keys = vec![key.public.clone()];
        TokenSigner::new(key, keys, TokenSettings::default())
    }

    fn claims() -> Claims {
        Claims {
            aud: vec![ISSUER.into()],
            exp: 2000,
            iat: 1000,
            iss: ISSUER.into(),
            jti: "j".into(),
            kubernetes: KubernetesClaims {
                namespace: "n".into(),
                serviceaccount: Reference { name: "robot".into(), uid: "u".into() },
                ..KubernetesClaims::default()
            },
            nbf: 1000,
            sub: "system:serviceaccount:n:robot".into(),
        }
    }

    #[test]
    fn tokens_are_checked_in_every_part() {
        let (ours, theirs) = (signer(), signer());
        let token = ours.sign(&claims()).unwrap();
        let foreign = theirs.sign(&claims()).unwrap();
        let mut forged: Vec<&str> = token.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode(r#"{"alg":"none"}"#);
        forged[0] = &other;
        let forged = forged.join(".");
        let table = [
            (token.as_str(), 1500, ISSUER, Ok(claims())),
            (&token, 2000, ISSUER, Err(TokenError::Expired)),
            (&token, 999, ISSUER, Err(TokenError::Expired)),
            (&token, 1500, "other", Err(TokenError::Audience)),
            (&foreign, 1500, ISSUER, Err(TokenError::Signature)),
            (&forged, 1500, ISSUER, Err(TokenError::NotOurs)),
            ("T", 1500, ISSUER, Err(TokenError::NotOurs)),
            ("a.b.c", 1500, ISSUER, Err(TokenError::NotOurs)),
        ];
        for (token, now, audience, want) in table {
            assert_eq!(
                ours.verify(token, now, &[audience.to_owned()]),
                want,
                "{token} at {now} for {audience}"
            );
        }
    }
}
