//! Lists of indexes of a job's pods, such as `1,3-5`.

/// Parses the intervals of a list whose indexes are below `completions`. Errors are in upstream's wording.
pub(crate) fn parse(text: &str, completions: i64) -> Result<Vec<(i64, i64)>, String> {
    let mut intervals: Vec<(i64, i64)> = Vec::new();
    if text.is_empty() {
        return Ok(intervals);
    }
    for part in text.split(',') {
        let limits: Vec<&str> = part.split('-').collect();
        let index = |text: &str| -> Result<i64, String> {
            let index = text
                .parse::<i64>()
                .map_err(|_| format!("cannot convert string to integer for index: {text:?}"))?;
            if index >= completions { Err(format!("too large index: {text:?}")) } else { Ok(index) }
        };
        let (first, last) = match limits.as_slice() {
            [one] => (index(one)?, index(one)?),
            [first, last] => {
                let (first, last) = (index(first)?, index(last)?);
                if first >= last {
                    return Err(format!("non-increasing order, previous: {first}, current: {last}"));
                }
                (first, last)
            }
            _ => {
                return Err(format!(
                    "the fragment {part:?} violates the requirement that an index interval can have at most two parts \
                     separated by '-'"
                ));
            }
        };
        if let Some((_, before)) = intervals.last()
            && *before >= first
        {
            return Err(format!("non-increasing order, previous: {before}, current: {first}"));
        }
        intervals.push((first, last));
    }
    Ok(intervals)
}

/// Returns the number of indexes in the intervals.
pub(crate) fn count(intervals: &[(i64, i64)]) -> i64 {
    intervals.iter().map(|(first, last)| last - first + 1).sum()
}

/// Returns the first index that two lists of ascending intervals have in common.
pub(crate) fn overlap(a: &[(i64, i64)], b: &[(i64, i64)]) -> Option<i64> {
    let (mut left, mut right) = (0, 0);
    while let (Some(one), Some(other)) = (a.get(left), b.get(right)) {
        if one.1 < other.0 {
            left += 1;
        } else if other.1 < one.0 {
            right += 1;
        } else {
            return Some(one.0.max(other.0));
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_or_refused_in_upstreams_words() {
        for (text, wanted) in [
            ("", Ok(vec![])),
            ("1,3-5", Ok(vec![(1, 1), (3, 5)])),
            ("a", Err("cannot convert string to integer for index: \"a\"")),
            ("9", Err("too large index: \"9\"")),
            ("3-2", Err("non-increasing order, previous: 3, current: 2")),
            ("3,3", Err("non-increasing order, previous: 3, current: 3")),
            (
                "1-2-3",
                Err(
                    "the fragment \"1-2-3\" violates the requirement that an index interval can have at most two parts \
                     separated by '-'",
                ),
            ),
        ] {
            assert_eq!(parse(text, 8), wanted.map_err(str::to_owned), "{text}");
        }
        assert_eq!(count(&[(1, 1), (3, 5)]), 4);
        assert_eq!(overlap(&[(1, 1), (3, 5)], &[(0, 0), (5, 9)]), Some(5));
        assert_eq!(overlap(&[(1, 1), (3, 5)], &[(2, 2), (6, 6)]), None);
    }
}
