//! Bearer tokens known from the start: the administrator's, and those from a file.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use gc_registry::api::UserInfo;
use sha2::{Digest as _, Sha256};

use crate::auth::pki::{ADMIN_USER, MASTERS_GROUP};

/// The static tokens.
#[derive(Debug, Default)]
pub(crate) struct Authenticator {
    /// Keyed by digest, so that the duration of a look-up reveals nothing about the tokens.
    tokens: HashMap<[u8; 32], UserInfo>,
}

impl Authenticator {
    /// Loads the administrator's token and the tokens of a file. An error names the file and the cause.
    pub(crate) fn load(admin: Option<&str>, file: Option<&Path>) -> Result<Self, (PathBuf, String)> {
        let mut tokens = HashMap::new();
        if let Some(token) = admin {
            let groups = vec![MASTERS_GROUP.to_owned()];
            tokens.insert(digest(token), UserInfo { name: ADMIN_USER.into(), groups, ..UserInfo::default() });
        }
        if let Some(path) = file {
            let text = std::fs::read_to_string(path).map_err(|error| (path.to_owned(), error.to_string()))?;
            for (index, line) in text.lines().enumerate() {
                let line = line.trim();
                if line.is_empty() || line.starts_with('#') {
                    continue;
                }
                let (token, user) = token_line(line).ok_or_else(|| {
                    (path.to_owned(), format!("line {}: expected token,user,uid[,\"groups\"]", index + 1))
                })?;
                tokens.insert(digest(&token), user);
            }
        }
        Ok(Self { tokens })
    }

    /// Returns the user that a token stands for.
    pub(crate) fn user(&self, token: &str) -> Option<&UserInfo> {
        self.tokens.get(&digest(token))
    }
}

fn digest(token: &str) -> [u8; 32] {
    Sha256::digest(token.as_bytes()).into()
}

pub(crate) fn token_line(line: &str) -> Option<(String, UserInfo)> {
    let mut parts = line.splitn(4, ',').map(str::trim);
    let (token, name, uid) = (parts.next()?, parts.next()?, parts.next()?);
    if token.is_empty() || name.is_empty() {
        return None;
    }
    let groups = parts.next().unwrap_or_default().trim_matches('"');
    let groups = groups.split(',').map(str::trim).filter(|group| !group.is_empty()).map(str::to_owned);
    let user =
        UserInfo { name: name.into(), uid: uid.into(), groups: groups.collect(), ..UserInfo::default() };
    Some((token.to_owned(), user))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)] // in tests a broken assumption should stop the test
mod tests {
    use super::*;

    #[test]
    fn token_files_are_read_line_by_line() {
        let table = [
            ("t,bob,7", Some(("t", "bob", "7", vec![]))),
            ("t,bob,7,\"a,b\"", Some(("t", "bob", "7", vec!["a", "b"]))),
            ("t,bob", None),
            (",bob,7", None),
        ];
        for (line, want) in table {
            let got = token_line(line);
            let got = got.as_ref().map(|(token, user)| {
                let groups: Vec<&str> = user.groups.iter().map(String::as_str).collect();
                (token.as_str(), user.name.as_str(), user.uid.as_str(), groups)
            });
            assert_eq!(got, want, "{line}");
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens.csv");
        std::fs::write(&path, "# comment\n\nbroken\n").unwrap();
        let (_, detail) = Authenticator::load(None, Some(&path)).unwrap_err();
        assert!(detail.starts_with("line 3"), "{detail}");
    }
}
