//! Bodies of fuzz targets; see [`crate::fuzz`].
#![allow(clippy::unwrap_used, reason = "a broken law should stop the run")]

use super::config::parse;

/// Checks a `KubeControllerManagerConfiguration`: parsing gives the same result each time, or an error with its position. An
/// unknown section is an error.
pub fn controller_manager_configuration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let read = parse(text);
    if let Err(error) = &read {
        let place: Vec<&str> = error.split(':').take(2).collect();
        assert!(place.len() == 2 && place.iter().all(|number| number.parse::<u64>().is_ok()), "{error}");
        return;
    }
    // NaN does not equal itself, so compare the debugging output.
    assert_eq!(format!("{:?}", parse(text)), format!("{read:?}"));
    if !text.trim_start().starts_with(['{', '-', '%', '?']) && !text.contains("...") {
        assert!(parse(&format!("zzz: 1\n{text}")).is_err());
    }
}
