//! Tests hold the promises of the pages: every test that a page names exists, every promise of SECURITY.md and every cell of the
//! comparison names a test, and counts of lines are about right.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{pages, repository, texts};

/// Pages in which a long name in code is the name of a test. On other pages it may be a metric.
const PAGES_WITH_TESTS: [&str; 6] = [
    "SECURITY.md",
    "docs/proof.md",
    "docs/decisions.md",
    "docs/defects.md",
    "docs/versions.md",
    "docs/contributing/testing.md",
];
/// Number of underscores that makes a name long.
const LONG: usize = 4;

/// Returns the sources of all crates, by path below `crates/`.
fn sources() -> BTreeMap<String, String> {
    let crates = repository().join("crates");
    let found = texts(&crates, ".rs").into_iter();
    found.map(|(path, text)| (path.strip_prefix(&crates).unwrap().display().to_string(), text)).collect()
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Returns the texts in single backticks on a line.
fn code(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// Returns the names of the functions in a source, including those that a macro lists line by line.
fn functions(source: &str) -> BTreeSet<&str> {
    let defined = source.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
    let listed = source.lines().filter_map(|line| line.trim().strip_suffix(','));
    defined.chain(listed).filter(|name| is_word(name)).collect()
}

fn is_defined(source: &str, name: &str) -> bool {
    functions(source).contains(name)
}

/// Returns the tests that a text names, each with its file: `` `gc-x/tests/y.rs`: `one`, `two` ``.
fn cited(text: &str) -> Vec<(&str, Vec<&str>)> {
    let mut found: Vec<(&str, Vec<&str>)> = Vec::new();
    let mut parts = text.split('`');
    let mut before = parts.next().unwrap_or_default();
    while let (Some(word), Some(after)) = (parts.next(), parts.next()) {
        let is_file = Path::new(word).extension().is_some_and(|extension| extension == "rs");
        if is_file && after.trim() == ":" {
            found.push((word, Vec::new()));
        } else if let Some((_, names)) = found.last_mut()
            && is_word(word)
            && matches!(before.trim(), ":" | ",")
        {
            names.push(word);
        }
        before = after;
    }
    found
}

#[test]
fn tests_are_found_where_a_text_names_them() {
    let text = "held by `a/b.rs`: `one`, `two`; `c.rs`: `three`, and `four` (`d.rs`)";
    assert_eq!(cited(text), [("a/b.rs", vec!["one", "two"]), ("c.rs", vec!["three"])]);
    assert!(is_defined("#[test]\nfn one() {}", "one") && is_defined("each! {\n    one,\n}", "one"));
    assert!(!is_defined("fn once() { one(); }", "one"));
}

#[test]
fn every_test_that_a_page_names_exists() {
    let sources = sources();
    let defined: BTreeSet<&str> = sources.values().flat_map(|source| functions(source)).collect();
    let (mut found, mut missing) = (0, Vec::new());
    for name in PAGES_WITH_TESTS {
        let page = std::fs::read_to_string(repository().join(name)).unwrap();
        for word in page.lines().flat_map(code).map(|word| word.rsplit("::").next().unwrap_or_default()) {
            if is_word(word) && word.matches('_').count() >= LONG && word.to_lowercase() == word {
                found += 1;
                if !defined.contains(word) {
                    missing.push(format!("{name}: {word}"));
                }
            }
        }
    }
    for (page, text) in pages() {
        for (file, names) in text.lines().flat_map(cited) {
            let Some(source) = sources.get(file.trim_start_matches("crates/")) else { continue };
            // Types and labels are cited as well.
            let names = names.into_iter().filter(|name| name.starts_with(|first: char| first.is_lowercase()));
            let absent = names.filter(|name| !is_defined(source, name));
            missing.extend(absent.map(|name| format!("{}: {file} has no {name}", page.display())));
        }
    }
    assert!(missing.is_empty(), "{missing:#?}");
    assert!(found > 100, "only {found} tests are named");
}

/// Returns the cells of each row of the table that follows a heading, without the head of the table.
fn rows<'a>(page: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let start = page.find(&format!("\n## {heading}\n")).unwrap_or_else(|| panic!("no section {heading}"));
    let lines = page[start + 1..].lines().skip(1).skip_while(|line| !line.starts_with('|'));
    let table = lines.take_while(|line| line.starts_with('|')).skip(2);
    table.map(|line| line.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Reports whether a verdict promises nothing because it leaves things as upstream leaves them, or as they are meant to be.
fn promises_nothing(verdict: &str) -> bool {
    ["as upstream", "by design", "permitted", "whoever configures"]
        .iter()
        .any(|word| verdict.starts_with(word))
}

/// Returns the first words of every promise in SECURITY.md.
fn promises(page: &str) -> Vec<&str> {
    let numbered = page.lines().filter_map(|line| {
        let (number, rest) = line.split_once(". **")?;
        number
            .parse::<u8>()
            .is_ok()
            .then(|| rest.split("**").next().unwrap_or_default().trim_end_matches('.'))
    });
    let trusted = rows(page, "Who is trusted with what").into_iter().filter(|row| !row[2].is_empty());
    let written = rows(page, "What each writer can cause").into_iter();
    let written = written.filter(|row| !promises_nothing(row[2]));
    numbered.chain(trusted.chain(written).map(|row| row[0])).chain(["What the collectors promise"]).collect()
}

#[test]
fn every_promise_names_its_test() {
    let page = std::fs::read_to_string(repository().join("SECURITY.md")).unwrap();
    let sources = sources();
    let promises = promises(&page);
    let held = rows(&page, "The tests of these promises");
    let mut errors = Vec::new();
    for promise in &promises {
        if held.iter().filter(|row| promise.starts_with(row[0])).count() != 1 {
            errors.push(format!("one row is to begin like: {promise}"));
        }
    }
    for row in &held {
        if !promises.iter().any(|promise| promise.starts_with(row[0])) {
            errors.push(format!("no promise begins like: {}", row[0]));
        }
        let tests = cited(row[1]);
        if tests.iter().all(|(_, names)| names.is_empty()) {
            errors.push(format!("without a test: {}", row[0]));
        }
        for (file, names) in tests {
            let source = sources.get(file).map_or("", String::as_str);
            let absent = names.into_iter().filter(|name| !is_defined(source, name));
            errors.extend(absent.map(|name| format!("{file} has no {name}")));
        }
    }
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(promises.len() > 30, "only {} promises found", promises.len());
}

/// Rows of the matrix in docs/comparison.md, the cell of kubegc in each, and the test that holds it.
const MATRIX: [(&str, &str, &str, &str); 8] = [
    (
        "the API server is",
        "its own, compared with kube-apiserver by generated requests",
        "kubegc/tests/conformance.rs",
        "all_generated_stories_are_answered_as_well_as_ever",
    ),
    ("garbage collection", "yes", "kubegc/tests/kubectl.rs", "each_cascade_ends_as_it_should"),
    (
        "Deployments and Jobs proceed",
        "yes, simulated",
        "kubegc/tests/kubectl/workloads.rs",
        "rollouts_are_followed_undone_and_scaled",
    ),
    (
        "containers run",
        "no",
        "kubegc/tests/kubectl/workloads.rs",
        "a_pod_on_a_simulated_node_says_that_nothing_runs_in_it",
    ),
    (
        "needs",
        "one binary",
        "kubegc/tests/attached/image.rs",
        "the_image_is_an_oci_layout_of_one_static_binary",
    ),
    (
        "waits until nothing is left to do",
        "yes (`settle`)",
        "kubegc-testing/tests/situations.rs",
        "settling_finds_what_polling_finds",
    ),
    (
        "clock can be set",
        "yes, the collectors'",
        "kubegc/tests/front_doors.rs",
        "the_clock_is_set_and_settling_is_awaited_over_http",
    ),
    (
        "a cluster for each test",
        "yes: in the same process in Rust, a process elsewhere",
        "kubegc-testing/tests/cluster.rs",
        "settled_is_settled",
    ),
];

#[test]
fn the_matrix_of_the_comparison_is_held() {
    let page = std::fs::read_to_string(repository().join("docs/comparison.md")).unwrap();
    let shown: Vec<(&str, &str)> = rows(&page, "In tests").iter().map(|row| (row[0], row[1])).collect();
    let held: Vec<(&str, &str)> = MATRIX.iter().map(|(row, cell, ..)| (*row, *cell)).collect();
    assert_eq!(shown, held, "each row needs a test");
    let sources = sources();
    for (row, _, file, name) in MATRIX {
        assert!(is_defined(&sources[file], name), "{row}: {file} has no {name}");
    }
}

/// Returns the number of lines in a module and those below it, without tests.
fn lines(sources: &BTreeMap<String, String>, module: &str) -> usize {
    let (file, folder) = (format!("{module}.rs"), format!("{module}/"));
    let shipped = |path: &str| !path.ends_with("/tests.rs") && !path.contains("/tests/");
    let found = sources
        .iter()
        .filter(|(path, _)| **path == file || path.strip_prefix(&folder).is_some_and(|_| shipped(path)));
    found.map(|(_, source)| source.lines().take_while(|line| line.trim() != "#[cfg(test)]").count()).sum()
}

/// docs/proof.md counts the lines that the simulator runs and does not run, rounded to the hundred; the count may be off by at most
/// a tenth.
#[test]
fn the_lines_of_what_is_proven_are_about_right() {
    let page = std::fs::read_to_string(repository().join("docs/proof.md")).unwrap();
    let sources = sources();
    let mut checked = 0;
    for row in page.lines().filter(|line| line.starts_with("| `gc-") && line.contains(" | about ")) {
        let cells: Vec<&str> = row.trim_matches('|').split(" | ").map(str::trim).collect();
        let mut words = code(cells[0]);
        let crate_name = words.next().unwrap();
        let real: usize = words.map(|module| lines(&sources, &format!("{crate_name}/src/{module}"))).sum();
        let told: usize = cells[1].trim_start_matches("about ").replace(',', "").parse().unwrap();
        assert!(told.abs_diff(real) * 10 <= real, "docs/proof.md: {told}, counted: {real}: {row}");
        checked += 1;
    }
    assert_eq!(checked, 4, "rows with counts of lines");
}
