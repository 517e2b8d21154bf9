//! The request, as the rules of kinds see it.

use crate::user::UserInfo;

/// Request context for the rules of kinds.
#[derive(Clone, Copy, Debug)]
pub struct Context<'a> {
    /// Time of the request.
    pub now: jiff::Timestamp,
    /// User.
    pub user: &'a UserInfo,
}

impl Context<'_> {
    /// Returns the time in the form of `metav1.Time`.
    pub(crate) fn time(&self) -> String {
        self.now.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }
}
