//! Bearer tokens among the subprotocols of a WebSocket, because pages in browsers can set no other header there.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use gc_registry::error::ApiError;
use http::header::{AUTHORIZATION, HeaderMap, HeaderValue, SEC_WEBSOCKET_PROTOCOL};

use crate::auth::authentication::unauthorized;
use crate::transport::connections::wants_web_socket;

/// Prefix of the subprotocol; the token follows in base64.
const PREFIX: &str = "base64url.bearer.authorization.k8s.io.";

/// Moves such a token to the header `Authorization`, where all other code expects it, and removes it from the subprotocols.
pub(crate) fn move_token(headers: &mut HeaderMap) -> Result<(), ApiError> {
    if !wants_web_socket(headers) || headers.contains_key(AUTHORIZATION) {
        return Ok(());
    }
    let protocols = headers.get_all(SEC_WEBSOCKET_PROTOCOL).iter().filter_map(|value| value.to_str().ok());
    let words: Vec<String> =
        protocols.flat_map(|value| value.split(',')).map(|word| word.trim().to_owned()).collect();
    let token =
        |word: &String| word.strip_prefix(PREFIX).filter(|token| !token.is_empty()).map(str::to_owned);
    let tokens: Vec<String> = words.iter().filter_map(token).collect();
    let others: Vec<String> = words.into_iter().filter(|word| token(word).is_none()).collect();
    let token = match tokens.as_slice() {
        [] => return Ok(()),
        // At least one protocol must remain for the server to agree to.
        [token] if !others.is_empty() => token,
        _ => return Err(unauthorized()),
    };
    let token = URL_SAFE_NO_PAD.decode(token).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    let token = token.filter(|token| !token.contains(' ')).ok_or_else(unauthorized)?;
    let bearer = HeaderValue::from_str(&format!("Bearer {token}")).map_err(|_| unauthorized())?;
    let others = HeaderValue::from_str(&others.join(",")).map_err(|_| unauthorized())?;
    headers.insert(AUTHORIZATION, bearer);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, others);
    Ok(())
}

#[cfg(test)]
mod tests {
    use http::header::{CONNECTION, UPGRADE};

    use super::*;

    /// The same cases as kube-apiserver 1.36.2 accepts; the token is `T`.
    #[test]
    fn tokens_are_found_among_protocols() {
        let token = format!("{PREFIX}VA");
        let unchanged = |protocols: &str| Ok((None, protocols.to_owned()));
        let moved = || Ok((Some("Bearer T".to_owned()), "a".to_owned()));
        for (protocols, want) in [
            (format!("{token}, a"), moved()),
            (format!("a,{token}"), moved()),
            ("a".to_owned(), unchanged("a")),
            (format!("{PREFIX}, a"), unchanged(&format!("{PREFIX}, a"))),
            (token.clone(), Err(401)),
            (format!("{token}, {token}, a"), Err(401)),
            (format!("{PREFIX}!!, a"), Err(401)),
            (format!("{PREFIX}VA==, a"), Err(401)),
            (format!("{PREFIX}_w, a"), Err(401)),
        ] {
            let mut headers = HeaderMap::new();
            let mut set = |name, text: &str| {
                headers.insert(name, HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static("")));
            };
            set(CONNECTION, "Upgrade");
            set(UPGRADE, "websocket");
            set(SEC_WEBSOCKET_PROTOCOL, &protocols);
            let done = move_token(&mut headers).map_err(|error| error.code);
            let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
            let given =
                done.map(|()| (text(AUTHORIZATION), text(SEC_WEBSOCKET_PROTOCOL).unwrap_or_default()));
            assert_eq!(given, want, "{protocols}");
        }
    }
}
