//! The endpoint of a driver.

use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum length of a driver's name (CSI: 63 characters of a domain name).
const LONGEST_NAME: usize = 63;

/// A CSI driver and the Unix socket on which it serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DriverEndpoint {
    driver: String,
    path: PathBuf,
}

/// Reason why a text is not a driver's endpoint.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    /// Contains no `=`.
    #[error("{0:?} names no driver; expected DRIVER=unix:///path/to/socket")]
    NoDriver(String),
    /// The driver's name is invalid.
    #[error(
        "{0:?} is no name of a CSI driver: up to {LONGEST_NAME} letters, digits, dots and dashes, with a letter or digit \
         at both ends"
    )]
    Name(String),
    /// Not a Unix socket.
    #[error("driver {driver}: endpoint {endpoint:?} is not supported; expected unix:///path/to/socket")]
    Scheme {
        /// The driver.
        driver: String,
        /// The text after the `=`.
        endpoint: String,
    },
    /// Its path is not absolute.
    #[error("driver {driver}: the path in {endpoint:?} must be absolute; expected unix:///path/to/socket")]
    Relative {
        /// The driver.
        driver: String,
        /// The text after the `=`.
        endpoint: String,
    },
}

impl DriverEndpoint {
    /// Parses `driver=unix:///path`.
    ///
    /// ```
    /// let endpoint = gc_external::csi::DriverEndpoint::parse("disk.example.com=unix:///run/csi/disk.sock").unwrap();
    /// assert_eq!(endpoint.driver(), "disk.example.com");
    /// ```
    pub fn parse(text: &str) -> Result<Self, EndpointError> {
        let (driver, endpoint) =
            text.split_once('=').ok_or_else(|| EndpointError::NoDriver(text.to_owned()))?;
        let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
        let inside = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'.' || byte == b'-';
        let bytes = driver.as_bytes();
        if bytes.len() > LONGEST_NAME
            || !edge(bytes.first())
            || !edge(bytes.last())
            || !bytes.iter().copied().all(inside)
        {
            return Err(EndpointError::Name(driver.to_owned()));
        }
        let both = || (driver.to_owned(), endpoint.to_owned());
        let Some(path) = endpoint.strip_prefix("unix://") else {
            let (driver, endpoint) = both();
            return Err(EndpointError::Scheme { driver, endpoint });
        };
        if !path.starts_with('/') {
            let (driver, endpoint) = both();
            return Err(EndpointError::Relative { driver, endpoint });
        }
        Ok(Self { driver: driver.to_owned(), path: path.into() })
    }

    /// Returns the driver's name.
    #[must_use]
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// Returns the path of the socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl fmt::Display for DriverEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unix://{}", self.path.display())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_a_driver_and_an_absolute_socket() {
        let name = |text: &str| Err(EndpointError::Name(text.to_owned()));
        let of = |make: fn(String, String) -> EndpointError, endpoint: &str| {
            Err(make("d".to_owned(), endpoint.to_owned()))
        };
        let scheme = |driver, endpoint| EndpointError::Scheme { driver, endpoint };
        let relative = |driver, endpoint| EndpointError::Relative { driver, endpoint };
        for (text, expected) in [
            ("d=unix:///run/x.sock", Ok(("d", "unix:///run/x.sock"))),
            ("disk.csi.example.com=unix:///x=y", Ok(("disk.csi.example.com", "unix:///x=y"))),
            ("unix:///run/x.sock", Err(EndpointError::NoDriver("unix:///run/x.sock".into()))),
            ("", Err(EndpointError::NoDriver(String::new()))),
            ("=unix:///x", name("")),
            ("a/b=unix:///x", name("a/b")),
            ("-a=unix:///x", name("-a")),
            ("d=tcp://127.0.0.1:1", of(scheme, "tcp://127.0.0.1:1")),
            ("d=/run/x.sock", of(scheme, "/run/x.sock")),
            ("d=unix://run/x.sock", of(relative, "unix://run/x.sock")),
            ("d=unix://", of(relative, "unix://")),
        ] {
            let parsed = DriverEndpoint::parse(text);
            let shown = parsed.as_ref().map(|found| (found.driver(), found.to_string()));
            let expected = expected.as_ref().map(|(driver, endpoint)| (*driver, (*endpoint).to_owned()));
            assert_eq!(shown, expected, "{text}");
        }
        let long = format!("{}=unix:///x", "d".repeat(64));
        assert_eq!(DriverEndpoint::parse(&long), Err(EndpointError::Name("d".repeat(64))));
    }
}
