//! The schedules of cron jobs: whether a text is one. When it is due is the business of their controller.

/// The fields of a schedule: name, least and greatest value, and the names that its values may have.
const FIELDS: [(u32, u32, &[&str]); 5] = [
    (0, 59, &[]),
    (0, 23, &[]),
    (1, 31, &[]),
    (1, 12, &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]),
    (0, 6, &["sun", "mon", "tue", "wed", "thu", "fri", "sat"]),
];

/// Says what is wrong with a schedule.
pub(crate) fn check(schedule: &str) -> Result<(), String> {
    let mut schedule = schedule;
    if let Some(rest) = schedule.strip_prefix("TZ=").or_else(|| schedule.strip_prefix("CRON_TZ=")) {
        let Some((_, rest)) = rest.split_once(' ') else {
            return Err("provided bad location".into());
        };
        schedule = rest.trim();
    }
    if schedule.is_empty() {
        return Err("empty spec string".into());
    }
    if let Some(name) = schedule.strip_prefix('@') {
        return descriptor(name, schedule);
    }
    let fields: Vec<&str> = schedule.split_whitespace().collect();
    if fields.len() != FIELDS.len() {
        return Err(format!("expected exactly 5 fields, found {}: [{}]", fields.len(), fields.join(" ")));
    }
    for (text, (least, most, names)) in fields.iter().zip(FIELDS) {
        for part in text.split(',') {
            check_range(part, least, most, names)?;
        }
    }
    Ok(())
}

fn descriptor(name: &str, whole: &str) -> Result<(), String> {
    match name {
        "yearly" | "annually" | "monthly" | "weekly" | "daily" | "midnight" | "hourly" => Ok(()),
        _ => match name.strip_prefix("every ") {
            Some(duration) if is_duration(duration) => Ok(()),
            Some(_) => Err(format!("failed to parse duration {whole}")),
            None => Err(format!("unrecognized descriptor: {whole}")),
        },
    }
}

/// A Go duration, such as `1h30m`.
fn is_duration(text: &str) -> bool {
    let mut rest = text;
    let mut any = false;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(digits);
        if number.parse::<f64>().is_err() {
            return false;
        }
        let Some(unit) = ["ns", "us", "µs", "ms", "s", "m", "h"].iter().find(|unit| {
            // `m` must not take the `m` of `ms`.
            tail.starts_with(**unit) && !(**unit == "m" && tail.starts_with("ms"))
        }) else {
            return false;
        };
        rest = &tail[unit.len()..];
        any = true;
    }
    any
}

fn check_range(text: &str, least: u32, most: u32, names: &[&str]) -> Result<(), String> {
    let (range, step) = match text.split_once('/') {
        Some((_, step)) if step.contains('/') => return Err(format!("too many slashes: {text}")),
        Some((range, step)) => (range, Some(step)),
        None => (text, None),
    };
    let value = |text: &str| -> Result<u32, String> {
        if let Some(index) = names.iter().position(|name| text.eq_ignore_ascii_case(name)) {
            return Ok(least + u32::try_from(index).unwrap_or_default());
        }
        text.parse::<u32>().map_err(|_| {
            format!("failed to parse int from {text}: strconv.Atoi: parsing {text:?}: invalid syntax")
        })
    };
    let (from, to) = match range {
        "*" | "?" => (least, most),
        _ => match range.split_once('-') {
            Some((_, to)) if to.contains('-') => return Err(format!("too many hyphens: {text}")),
            Some((from, to)) => (value(from)?, value(to)?),
            None => {
                let from = value(range)?;
                (from, if step.is_some() { most } else { from })
            }
        },
    };
    if from < least {
        return Err(format!("beginning of range ({from}) below minimum ({least}): {text}"));
    }
    if to > most {
        return Err(format!("end of range ({to}) above maximum ({most}): {text}"));
    }
    if from > to {
        return Err(format!("beginning of range ({from}) beyond end of range ({to}): {text}"));
    }
    match step.map(value).transpose()? {
        Some(0) => Err(format!("step of range should be a positive number: {text}")),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn schedules_are_told_from_other_texts() {
        for good in [
            "* * * * *",
            "*/5 0-6/2 1,15 jan-MAR mon",
            "0 0 ? * SUN",
            "5/15 * * * *",
            "@hourly",
            "@every 1h30m",
            "TZ=Europe/Berlin 0 8 * * *",
        ] {
            assert_eq!(check(good), Ok(()), "{good}");
        }
        for (bad, why) in [
            ("", "empty spec string"),
            ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("* 7-3 * * *", "beginning of range (7) beyond end of range (3): 7-3"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("x * * * *", "failed to parse int from x: strconv.Atoi: parsing \"x\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("@every day", "failed to parse duration @every day"),
            ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
            ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ] {
            assert_eq!(check(bad), Err(why.to_owned()), "{bad}");
        }
    }
}
