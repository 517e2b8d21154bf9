//! The request as the rules of kinds see it.

use crate::api::UserInfo;

/// What the rules of kinds need to know about a request.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// The time of the request.
    pub now: jiff::Timestamp,
    /// Who asks.
    pub user: &'a UserInfo,
}

impl Context<'_> {
    /// The time in the form of `metav1.Time`.
    pub(crate) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
