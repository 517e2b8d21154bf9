//! Files of the page, as `ui/build.mjs` creates them. They are in the repository, so a build needs no Node.

use bytes::Bytes;
use gc_apiserver::{ExtensionAnswer, ExtensionBody};

/// Path, media type and content.
const FILES: [(&str, &str, &[u8]); 7] = [
    ("/ui", "text/html; charset=utf-8", include_bytes!("../../../../ui/dist/index.html")),
    ("/ui/app.js", "text/javascript; charset=utf-8", include_bytes!("../../../../ui/dist/app.js")),
    ("/ui/enter.js", "text/javascript; charset=utf-8", include_bytes!("../../../../ui/dist/enter.js")),
    ("/ui/sign-in.js", "text/javascript; charset=utf-8", include_bytes!("../../../../ui/dist/sign-in.js")),
    ("/ui/app.css", "text/css; charset=utf-8", include_bytes!("../../../../ui/dist/app.css")),
    ("/ui/icon.svg", "image/svg+xml", include_bytes!("../../../../ui/dist/icon.svg")),
    ("/ui/licenses.txt", "text/plain; charset=utf-8", include_bytes!("../../../../ui/dist/licenses.txt")),
];

/// Page for a browser without a session.
const SIGN_IN: &str = include_str!("../../../../ui/dist/sign-in.html");

/// Page for a browser that follows a link from another site.
const ENTER: &str = include_str!("../../../../ui/dist/enter.html");

/// Files that need no session, because they show nothing of a cluster.
const PUBLIC: [&str; 4] = ["/ui/app.css", "/ui/icon.svg", "/ui/enter.js", "/ui/sign-in.js"];

fn file(code: u16, content_type: &'static str, content: &'static [u8]) -> ExtensionAnswer {
    let body = ExtensionBody::Whole(Bytes::from_static(content));
    ExtensionAnswer { code, content_type, headers: Vec::new(), body }
}

/// Returns the file at a path. Without a session, the answer explains how to get one.
pub(crate) fn answer(path: &str, signed_in: bool) -> Option<ExtensionAnswer> {
    let (path, content_type, content) = *FILES.iter().find(|(known, ..)| *known == path)?;
    if signed_in || PUBLIC.contains(&path) {
        return Some(file(200, content_type, content));
    }
    Some(sign_in())
}

/// Returns a blank page that reloads itself from this site.
pub(super) fn enter() -> ExtensionAnswer {
    file(200, "text/html; charset=utf-8", ENTER.as_bytes())
}

/// Returns the page for a missing session or a used link.
pub(super) fn sign_in() -> ExtensionAnswer {
    file(401, "text/html; charset=utf-8", SIGN_IN.as_bytes())
}
