//! Escaping of texts in URLs and forms, as AWS signs them.

use std::fmt::Write as _;

/// Encodes `application/x-www-form-urlencoded` as AWS requires it: unreserved characters stay, all others are escaped.
pub(crate) fn escape(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut escaped, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            escaped.push(char::from(byte));
        } else {
            let _ = write!(escaped, "%{byte:02X}");
        }
        escaped
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unreserved_characters_stay() {
        assert_eq!(escape("a b/c~é=1"), "a%20b%2Fc~%C3%A9%3D1");
    }
}
