//! The endpoint of a runtime.

use std::fmt;
use std::path::{Path, PathBuf};

/// A Unix socket on which a container runtime serves CRI.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    path: PathBuf,
}

/// Sockets that are tried, in this order, when no endpoint is configured.
pub const WELL_KNOWN_SOCKETS: [&str; 4] = [
    "/run/containerd/containerd.sock",
    "/run/crio/crio.sock",
    "/run/k3s/containerd/containerd.sock",
    "/var/run/cri-dockerd.sock",
];

/// Reason why a text is not a usable endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Empty.
    #[error("the container runtime endpoint is empty; expected unix:///path/to/socket")]
    Empty,
    /// Its scheme is not `unix`.
    #[error(
        "container runtime endpoint {text:?}: scheme {scheme:?} is not supported; expected unix:///path/to/socket"
    )]
    Scheme {
        /// The whole text.
        text: String,
        /// Scheme of the endpoint.
        scheme: String,
    },
    /// Its path is not absolute.
    #[error(
        "container runtime endpoint {0:?}: the socket path must be absolute; expected unix:///path/to/socket"
    )]
    Relative(String),
    /// None of the well-known sockets exists.
    #[error("no container runtime socket found at {}; name one with --container-runtime-endpoint", WELL_KNOWN_SOCKETS.join(", "))]
    NotFound,
}

impl Endpoint {
    /// Parses `unix:///path` or a bare absolute path.
    ///
    /// ```
    /// let endpoint = gc_cri::Endpoint::parse("unix:///run/crio/crio.sock").unwrap();
    /// assert_eq!(endpoint.to_string(), "unix:///run/crio/crio.sock");
    /// ```
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let path = match text.split_once("://") {
            Some(("unix", path)) => path,
            Some((scheme, _)) => {
                return Err(EndpointError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() });
            }
            None => text,
        };
        if path.is_empty() {
            return Err(EndpointError::Empty);
        }
        if !path.starts_with('/') {
            return Err(EndpointError::Relative(text.to_owned()));
        }
        Ok(Self { path: path.into() })
    }

    /// Returns the first well-known socket that exists.
    pub fn discover() -> Result<Self, EndpointError> {
        let existing = WELL_KNOWN_SOCKETS.iter().find(|path| Path::new(path).exists());
        existing.map(|path| Self { path: path.into() }).ok_or(EndpointError::NotFound)
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_unix_sockets_by_absolute_path() {
        let scheme = |text: &str, scheme: &str| {
            Err(EndpointError::Scheme { text: text.to_owned(), scheme: scheme.to_owned() })
        };
        for (text, expected) in [
            ("unix:///run/x.sock", Ok("unix:///run/x.sock")),
            ("/run/x.sock", Ok("unix:///run/x.sock")),
            ("", Err(EndpointError::Empty)),
            ("unix://", Err(EndpointError::Empty)),
            ("run/x.sock", Err(EndpointError::Relative("run/x.sock".into()))),
            ("unix://run/x.sock", Err(EndpointError::Relative("unix://run/x.sock".into()))),
            ("npipe:////./pipe/containerd", scheme("npipe:////./pipe/containerd", "npipe")),
            ("tcp://127.0.0.1:1", scheme("tcp://127.0.0.1:1", "tcp")),
        ] {
            assert_eq!(Endpoint::parse(text).map(|e| e.to_string()), expected.map(String::from), "{text}");
        }
    }
}
