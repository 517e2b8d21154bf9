//! Security headers for browsers, and the refusal of requests from other sites.

use gc_apiserver::{ExtensionAnswer, ExtensionBody, ExtensionRequest, SESSION_SECONDS, session_cookie};
use http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderName, HeaderValue, LOCATION, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use http::{HeaderMap, Method};

/// Allows scripts and styles of this server only, no frames around the page, and nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Paths that links on other sites may lead to.
const ARRIVALS: [&str; 2] = ["/ui", "/ui/login"];

/// Returns the answer with the security headers.
pub fn protected(mut answer: ExtensionAnswer) -> ExtensionAnswer {
    let headers: [(HeaderName, &'static str); 7] = [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_FRAME_OPTIONS, "DENY"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ];
    answer.headers.extend(headers.map(|(name, value)| (name, HeaderValue::from_static(value))));
    answer
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> &'a str {
    headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// Explains why a request is refused as coming from another site, if it is. A browser states where a request comes from; other
/// clients state nothing, and cannot act behind a user's back.
#[must_use]
pub fn foreign(headers: &HeaderMap) -> Option<&'static str> {
    let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
    if !matches!(site, "" | "same-origin" | "none") {
        return Some("requests from other sites are refused");
    }
    let origin = text(headers, &ORIGIN);
    let host = text(headers, &HOST);
    if !origin.is_empty() && !host.is_empty() && origin != format!("https://{host}") {
        return Some("the Origin is not this server");
    }
    None
}

/// Explains why a request to the page or its API is refused, if it is.
#[must_use]
pub fn cross_site(method: &Method, headers: &HeaderMap) -> Option<&'static str> {
    if let Some(why) = foreign(headers) {
        return Some(why);
    }
    // A browser sends this content type to another site only after a preflight request, which we do not answer.
    let content_type = text(headers, &CONTENT_TYPE);
    let is_json = content_type.split(';').next().is_some_and(|kind| kind.trim() == "application/json");
    (method == Method::POST && !is_json).then_some("the Content-Type of an order is application/json")
}

/// Reports whether a user follows a link on another site to the page. The browser does not send the cookie then; the response is a
/// page without content that loads itself again, from this site.
pub fn is_arrival(request: &ExtensionRequest) -> bool {
    let sent = |name: &'static str| text(&request.headers, &HeaderName::from_static(name));
    request.method == Method::GET
        && ARRIVALS.contains(&&*request.path)
        && matches!(sent("sec-fetch-site"), "cross-site" | "same-site")
        && sent("sec-fetch-mode") == "navigate"
        && sent("sec-fetch-dest") == "document"
}

/// Opens a session: its cookie is for this server only, hidden from scripts and never sent from other sites. The page follows by a
/// refresh, which comes from this site; a redirect would count as coming from the site of the link.
#[must_use]
pub fn signed_in(session: &str, headers: &HeaderMap) -> ExtensionAnswer {
    let name = session_cookie(headers);
    let cookie =
        format!("{name}={session}; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age={SESSION_SECONDS}");
    let page = "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><title>kubegc</title>\
                <link rel=\"icon\" href=\"/ui/icon.svg\">\
                <meta http-equiv=\"refresh\" content=\"0;url=/ui\"><p><a href=\"/ui\">kubegc</a></p></html>";
    with_cookie(page, cookie)
}

/// Ends the session in the browser.
#[must_use]
pub fn signed_out(headers: &HeaderMap) -> ExtensionAnswer {
    let name = session_cookie(headers);
    let cookie = format!("{name}=; Path=/; Secure; HttpOnly; SameSite=Strict; Max-Age=0");
    with_cookie("", cookie)
}

fn with_cookie(page: &'static str, cookie: String) -> ExtensionAnswer {
    // Tokens consist of letters, digits, hyphens and underscores.
    let cookie = HeaderValue::try_from(cookie).unwrap_or_else(|_| HeaderValue::from_static(""));
    ExtensionAnswer {
        code: 200,
        content_type: "text/html; charset=utf-8",
        headers: vec![(SET_COOKIE, cookie)],
        body: ExtensionBody::Whole(page.into()),
    }
}

/// Redirects to another path of this server.
#[must_use]
pub fn redirect(to: &'static str) -> ExtensionAnswer {
    ExtensionAnswer {
        code: 303,
        content_type: "text/plain; charset=utf-8",
        headers: vec![(LOCATION, HeaderValue::from_static(to))],
        body: ExtensionBody::Whole(bytes::Bytes::new()),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;

    #[test]
    fn links_of_other_sites_may_be_followed_to_the_page_alone() {
        let link = [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-mode", "navigate"),
            ("sec-fetch-dest", "document"),
        ];
        let with = |name: &'static str, value: &'static str| {
            link.map(|pair| if pair.0 == name { (name, value) } else { pair })
        };
        let table = [
            ("GET", "/ui", link, true),
            ("GET", "/ui/login", link, true),
            ("GET", "/ui", with("sec-fetch-site", "same-site"), true),
            ("GET", "/ui", with("sec-fetch-site", "same-origin"), false),
            ("GET", "/ui", with("sec-fetch-dest", "iframe"), false),
            ("GET", "/ui", with("sec-fetch-mode", "no-cors"), false),
            ("GET", "/ui/app.js", link, false),
            ("GET", "/kubegc/v1/overview", link, false),
            ("POST", "/ui", link, false),
        ];
        for (method, path, headers, is) in table {
            let headers: Vec<(HeaderName, HeaderValue)> = headers
                .into_iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let request = ExtensionRequest {
                method: method.parse().unwrap(),
                path: path.into(),
                query: Vec::new(),
                headers: HeaderMap::from_iter(headers.clone()),
                body: bytes::Bytes::new(),
                user: gc_registry::api::UserInfo::default(),
                origin: None,
            };
            assert_eq!(is_arrival(&request), is, "{method} {path} {headers:?}");
        }
    }

    #[test]
    fn requests_of_other_sites_are_refused() {
        let json = ("content-type", "application/json; charset=utf-8");
        let table: [(&str, &[(&str, &str)], bool); 9] = [
            ("GET", &[], true),
            ("GET", &[("sec-fetch-site", "same-origin")], true),
            ("GET", &[("sec-fetch-site", "none")], true),
            ("GET", &[("sec-fetch-site", "cross-site")], false),
            ("GET", &[("sec-fetch-site", "same-site")], false),
            ("POST", &[json], true),
            ("POST", &[json, ("host", "127.0.0.1:1"), ("origin", "https://127.0.0.1:1")], true),
            ("POST", &[json, ("host", "127.0.0.1:1"), ("origin", "https://evil.example")], false),
            ("POST", &[("content-type", "text/plain")], false),
        ];
        for (method, headers, allowed) in table {
            let map: HeaderMap = headers
                .iter()
                .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
                .collect();
            let refused = cross_site(&method.parse().unwrap(), &map);
            assert_eq!(refused.is_none(), allowed, "{method} {headers:?}: {refused:?}");
        }
    }
}
