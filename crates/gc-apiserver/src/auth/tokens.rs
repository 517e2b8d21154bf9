//! Service-account tokens: JSON web tokens signed with ES256 and the key of the data directory.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Issuer of our tokens, and their audience unless another is asked for.
pub(crate) const ISSUER: &str = "https://kubernetes.default.svc.cluster.local";
/// Longest token that is parsed; ours have less than 1.5 KiB.
const MAXIMUM_TOKEN_LENGTH: usize = 16 * 1024;

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Claims {
    /// Audiences.
    pub(crate) aud: Vec<String>,
    /// Seconds since the epoch at which it ends.
    pub(crate) exp: i64,
    /// Issued at.
    pub(crate) iat: i64,
    /// Issuer.
    pub(crate) iss: String,
    /// Id of this token.
    pub(crate) jti: String,
    /// What it is bound to.
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
    /// The pod it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) pod: Option<Reference>,
    /// The secret it is bound to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<Reference>,
    /// The node it is bound to.
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

/// Why a token is no good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TokenError {
    /// Not a token of ours at all.
    #[error("not a service-account token of this server")]
    NotOurs,
    /// The signature does not fit.
    #[error("the signature does not verify")]
    Signature,
    /// Outside of its time.
    #[error("the token has expired or is not valid yet")]
    Expired,
    /// Not for this audience.
    #[error("the token is for another audience")]
    Audience,
}

/// Makes and checks tokens.
pub(crate) struct TokenSigner {
    key: EcdsaKeyPair,
    key_id: String,
    random: SystemRandom,
}

impl TokenSigner {
    /// From a PKCS#8 P-256 key.
    pub(crate) fn new(pkcs8: &[u8]) -> Result<Self, String> {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, pkcs8, &random)
            .map_err(|error| error.to_string())?;
        let key_id = URL_SAFE_NO_PAD.encode(Sha256::digest(key.public_key().as_ref()));
        Ok(Self { key, key_id, random })
    }

    /// Signs claims.
    pub(crate) fn sign(&self, claims: &Claims) -> Result<String, String> {
        let header = json!({"alg": "ES256", "kid": self.key_id});
        let claims = serde_json::to_vec(claims).map_err(|error| error.to_string())?;
        let signed =
            format!("{}.{}", URL_SAFE_NO_PAD.encode(header.to_string()), URL_SAFE_NO_PAD.encode(claims));
        let signature =
            self.key.sign(&self.random, signed.as_bytes()).map_err(|_| "signing failed".to_owned())?;
        Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature.as_ref())))
    }

    /// Checks signature, issuer, time and audience (any one of `audiences`). Whether the account and the
    /// object that it is bound to still exist is for the caller to see.
    pub(crate) fn verify(&self, token: &str, now: i64, audiences: &[&str]) -> Result<Claims, TokenError> {
        if token.len() > MAXIMUM_TOKEN_LENGTH {
            return Err(TokenError::NotOurs);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::NotOurs)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::NotOurs)?;
        let decode = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| TokenError::NotOurs);
        let header: Value = serde_json::from_slice(&decode(header)?).map_err(|_| TokenError::NotOurs)?;
        if header.get("alg") != Some(&json!("ES256")) {
            return Err(TokenError::NotOurs);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &decode(signature)?)
            .map_err(|_| TokenError::Signature)?;
        let claims: Claims = serde_json::from_slice(&decode(claims)?).map_err(|_| TokenError::NotOurs)?;
        if claims.iss != ISSUER {
            return Err(TokenError::NotOurs);
        }
        if now >= claims.exp || now < claims.nbf {
            return Err(TokenError::Expired);
        }
        if !claims.aud.iter().any(|audience| audiences.contains(&audience.as_str())) {
            return Err(TokenError::Audience);
        }
        Ok(claims)
    }

    /// The key set for `/openid/v1/jwks`.
    pub(crate) fn key_set(&self) -> Value {
        // An uncompressed point: 0x04, then 32 bytes of x and 32 of y.
        let point = self.key.public_key().as_ref();
        let half =
            |range: std::ops::Range<usize>| URL_SAFE_NO_PAD.encode(point.get(range).unwrap_or_default());
        json!({"keys": [{
            "use": "sig", "kty": "EC", "kid": self.key_id, "crv": "P-256", "alg": "ES256",
            "x": half(1..33), "y": half(33..65),
        }]})
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    fn signer() -> TokenSigner {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
        TokenSigner::new(key.serialized_der()).unwrap()
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
            assert_eq!(ours.verify(token, now, &[audience]), want, "{token} at {now} for {audience}");
        }
    }
}
