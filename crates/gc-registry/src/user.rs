//! Users, as identified by authentication.

/// The user of a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserInfo {
    /// User name.
    pub name: String,
    /// UID, if known.
    pub uid: String,
    /// Groups.
    pub groups: Vec<String>,
    /// Extra attributes, sorted by key.
    pub extra: Vec<(String, Vec<String>)>,
}
