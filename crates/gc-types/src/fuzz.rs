//! Properties of parsed texts, as bodies of fuzz targets (`fuzz/` at the root), which also run as tests.

use crate::{GoDuration, GoDurationError, Quantity, ResourceVersion, Uid, parse_quantity};

/// Checks that a duration prints as a text of the same duration, a sign negates it, and concatenated ones add up.
pub fn go_duration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut lines = text.split('\n');
    let (first, second) = (lines.next().unwrap_or_default(), lines.next().unwrap_or_default());
    let Ok(read) = first.parse::<GoDuration>() else { return };
    assert_eq!(read.to_string().parse(), Ok(read));
    let unsigned = |text: &str| !text.starts_with(['-', '+']) && text != "0";
    if !unsigned(first) {
        return;
    }
    assert_eq!(format!("-{first}").parse(), Ok(GoDuration(-read.0)));
    if let Ok(more) = second.parse::<GoDuration>()
        && unsigned(second)
    {
        let both = format!("{first}{second}");
        let sum = read.0.checked_add(more.0).map(GoDuration);
        assert_eq!(both.parse(), sum.ok_or(GoDurationError::OutOfRange(both)));
    }
}

/// Checks that a quantity prints as a text of the same quantity, and that its sum with zero, its difference and its value are its
/// own.
pub fn quantity(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(read) = Quantity::parse(text) else { return };
    let printed = read.to_string();
    assert_eq!(Quantity::parse(&printed).map(|again| again.to_string()), Ok(printed.clone()));
    assert!(Quantity::parse(&printed).is_ok_and(|again| again.same_as(read)));
    assert!((read + Quantity::default()).same_as(read) && read.without(read).is_zero());
    // A number beyond the greatest quantity is parsed as that, but still is a whole number of units.
    if let Some(units) =
        parse_quantity(text).filter(|units| units.unsigned_abs() <= i64::MAX.unsigned_abs().into())
    {
        assert_eq!(units, read.value());
    }
}

/// Checks that UIDs print their original text and are equal if their texts are, and that versions are numbers, or unknown.
pub fn identity(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (first, second) = text.split_once('\n').unwrap_or((&text, ""));
    let (one, other) = (Uid::new(first), Uid::new(second));
    assert_eq!(one.to_string(), first);
    assert_eq!(one == other, first == second);
    if let Some(bytes) = one.as_uuid() {
        assert_eq!(Uid::from_uuid(bytes), one);
    }
    let version = ResourceVersion::parse(first);
    if version != ResourceVersion::UNKNOWN {
        assert_eq!(ResourceVersion::parse(&version.to_string()), version);
        assert!(first.bytes().all(|byte| byte.is_ascii_digit() || byte == b'+'));
    }
}

#[cfg(test)]
gc_fuzz_replay::replay_tests!(go_duration, quantity, identity);
