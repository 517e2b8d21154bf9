//! The table of upstream's tests in the specification of collection on nodes: each row names an existing case of ours, which a test
//! names in turn.

use std::collections::BTreeSet;

use super::{repository, texts};

/// Returns the numbers in a text: `T12`, and those of a range such as `T45 to T51`.
fn numbers(text: &str) -> BTreeSet<u32> {
    let mut found = BTreeSet::new();
    let separates = |c: char| c.is_whitespace() || ",:.\"()|;`".contains(c);
    // The previous number, and whether "to" follows it.
    let (mut before, mut is_range) = (None, false);
    for word in text.split(separates).filter(|word| !word.is_empty()) {
        let number = word.strip_prefix('T').and_then(|digits| digits.parse::<u32>().ok());
        match (number, before) {
            (Some(number), Some(first)) if is_range => found.extend(first..=number),
            (Some(number), _) => _ = found.insert(number),
            (None, _) => {}
        }
        is_range = word == "to" && before.is_some();
        before = number.or(before.filter(|_| is_range));
    }
    found
}

#[test]
fn every_case_of_upstream_has_a_verdict_and_a_test() {
    let spec = std::fs::read_to_string(repository().join("docs/spec/node-gc.md")).unwrap();
    let (catalogue, rest) = spec.split_once("### 22.12 ").unwrap();
    let catalogue = catalogue.split_once("\n## 22. ").unwrap().1;
    let known: BTreeSet<u32> = catalogue
        .lines()
        .filter_map(|line| line.strip_prefix('T')?.split_once(' ')?.0.parse().ok())
        .collect();
    let mut named = BTreeSet::new();
    for folder in ["gc-collectors", "gc-node", "gc-cri", "gc-types", "kubegc/tests", "kubegc/src"] {
        for text in texts(&repository().join("crates").join(folder), ".rs").values() {
            named.extend(numbers(text));
        }
    }
    let table = rest.split_once("\n---\n").unwrap().0;
    let rows: Vec<Vec<&str>> = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect())
        .collect();
    let tests: BTreeSet<&str> = rows.iter().map(|row| row[0]).collect();
    assert!(tests.len() >= 27 + 6, "{tests:?}");
    for row in rows {
        let [_, _, ours, verdict] = row[..] else { panic!("{row:?}") };
        let words = ["same", "stricter", "not ours"];
        assert!(words.iter().any(|word| verdict.starts_with(word)), "{row:?}");
        let numbers = numbers(ours);
        assert_eq!(numbers.is_empty(), verdict.starts_with("not ours"), "{row:?}");
        for number in numbers {
            assert!(known.contains(&number), "{row:?}: T{number} is not in the catalogue");
            assert!(named.contains(&number), "{row:?}: no test names T{number}");
        }
    }
}
