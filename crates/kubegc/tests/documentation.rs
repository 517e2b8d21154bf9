//! Keeps the documentation true: every reference to docs/spec in the code and the documents exists there, every link leads
//! somewhere, every page is in the book, and every block of code is run or says why not.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

#[path = "documentation/blocks.rs"]
mod blocks;
#[path = "documentation/exercised.rs"]
mod exercised;
#[path = "documentation/flags.rs"]
mod flags;
#[path = "documentation/held.rs"]
mod held;
#[path = "documentation/kubernetes_version.rs"]
mod kubernetes_version;
#[path = "documentation/snippets.rs"]
mod snippets;
mod support;
#[path = "documentation/upstream.rs"]
mod upstream;
#[path = "documentation/vocabulary.rs"]
mod vocabulary;
#[path = "documentation/walks.rs"]
mod walks;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use gc_collectors::collectors::{COLLECTORS, Watches};

/// Prefixes that resemble those of labels but belong to names of standards.
const NOT_LABELS: [&str; 2] = ["KEP-", "SHA-"];

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Returns the files below a directory whose names have this ending, with their texts.
fn texts(folder: &Path, ending: &str) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.to_string_lossy().ends_with(ending) {
                let text = std::fs::read_to_string(&path).unwrap();
                found.insert(path, text);
            }
        }
    }
    found
}

/// Returns the words of a text that have the form of labels: capitals, hyphens and finally digits, like `R-2`, `PV-T43`, `L16`.
fn labels(text: &str) -> impl Iterator<Item = &str> {
    text.split(|character: char| !character.is_ascii_alphanumeric() && character != '-' && character != '_')
        .filter(|word| {
            let beginning = family(word);
            let digits = word.len() - beginning.len();
            (1..=3).contains(&digits)
                && beginning.starts_with(|character: char| character.is_ascii_uppercase())
                && beginning.chars().all(|character| character.is_ascii_uppercase() || character == '-')
                // Numbers begin at 1; `T00` is a time of day.
                && word[beginning.len()..].parse().is_ok_and(|number: u32| number > 0)
                // A single letter is a label only with two digits or more: `L16`, not `V1`.
                && (beginning.contains('-') || (beginning.len() == 1 && digits >= 2))
        })
}

/// Returns a label without its number.
fn family(label: &str) -> &str {
    label.trim_end_matches(|character: char| character.is_ascii_digit())
}

/// Returns the section numbers in a page's headings.
fn sections(page: &str) -> BTreeSet<&str> {
    page.lines()
        .filter(|line| line.starts_with('#'))
        .filter_map(|line| line.trim_start_matches('#').split_whitespace().next())
        .map(|number| number.trim_end_matches('.'))
        .filter(|number| number.starts_with(|character: char| character.is_ascii_digit()))
        .collect()
}

#[test]
fn every_label_that_is_cited_is_in_the_specification() {
    let specification = texts(&repository().join("docs/spec"), ".md");
    let known: BTreeSet<&str> = specification.values().flat_map(|text| labels(text)).collect();
    let families: BTreeSet<&str> =
        known.iter().map(|label| family(label)).filter(|family| !NOT_LABELS.contains(family)).collect();
    let mut citing = texts(&repository().join("crates"), ".rs");
    citing.extend(texts(&repository().join("docs"), ".md"));
    let (mut cited, mut unknown) = (0, BTreeSet::new());
    for (path, text) in &citing {
        for label in labels(text).filter(|label| families.contains(family(label))) {
            cited += 1;
            // docs/defects.md omits the prefix of upstream's defects.
            if !known.contains(label) && !known.contains(format!("BEAT-{label}").as_str()) {
                unknown.insert(format!("{}: {label}", path.display()));
            }
        }
    }
    assert!(cited > 500, "only {cited} labels found: is this test reading the right files?");
    assert!(unknown.is_empty(), "cited and not in docs/spec: {unknown:#?}");
}

#[test]
fn every_section_that_is_cited_is_in_the_specification() {
    let specification = texts(&repository().join("docs/spec"), ".md");
    let mut missing = BTreeSet::new();
    let mut cited = 0;
    for (path, text) in texts(&repository().join("crates"), ".rs") {
        // A citation may continue in the next line of a comment.
        let text: String = text
            .lines()
            .map(|line| line.trim().trim_start_matches(['/', '!']).trim())
            .collect::<Vec<_>>()
            .join(" ");
        for (page, contents) in &specification {
            let name = format!("`{}`", page.file_name().unwrap().to_string_lossy());
            let known = sections(contents);
            for rest in text.split(name.as_str()).skip(1) {
                let rest = rest.trim_start_matches(',').trim_start();
                let rest = rest.strip_prefix("sections").or(rest.strip_prefix("section")).unwrap_or(rest);
                let numbers = rest
                    .split([' ', ',', ')', ':', ';'])
                    .filter(|word| !word.is_empty())
                    .take_while(|word| {
                        word.starts_with(|c: char| c.is_ascii_digit()) || ["to", "and"].contains(word)
                    })
                    .map(|word| word.trim_end_matches('.'))
                    .filter(|word| word.starts_with(|c: char| c.is_ascii_digit()));
                for number in numbers {
                    cited += 1;
                    if !known.contains(number) {
                        missing.insert(format!("{}: {name} {number}", path.display()));
                    }
                }
            }
        }
    }
    assert!(cited > 40, "only {cited} sections found: is this test reading the right files?");
    assert!(missing.is_empty(), "cited and not in docs/spec: {missing:#?}");
}

/// Returns every Markdown page in the repository's root and in docs/, with its text.
fn pages() -> BTreeMap<PathBuf, String> {
    let root = repository();
    let mut pages = texts(&root.join("docs"), ".md");
    for entry in std::fs::read_dir(&root).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "md") {
            let text = std::fs::read_to_string(&path).unwrap();
            pages.insert(path, text);
        }
    }
    pages
}

/// Returns the lines of a page outside fenced code. Indented lines count: they may continue an item.
fn prose(page: &str) -> impl Iterator<Item = &str> {
    let mut fenced = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        fenced ^= is_fence;
        !fenced && !is_fence
    })
}

/// Returns a line without the text between backticks.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect()
}

/// Returns the targets of a page's links.
fn links(page: &str) -> Vec<String> {
    let mut found = Vec::new();
    for line in prose(page) {
        for rest in without_code(line).split("](").skip(1) {
            found.push(rest.split(')').next().unwrap_or_default().to_owned());
        }
    }
    found
}

/// Returns the anchors of a page's headings, as mdBook and hosting sites make them.
fn anchors(page: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for heading in prose(page).filter(|line| line.starts_with('#')) {
        let anchor: String = heading
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter(|character| character.is_alphanumeric() || matches!(character, ' ' | '-' | '_'))
            .map(|character| if character == ' ' { '-' } else { character.to_ascii_lowercase() })
            .collect();
        // The second heading with the same words is numbered from 1.
        let mut unique = anchor.clone();
        for number in 1.. {
            if found.insert(unique) {
                break;
            }
            unique = format!("{anchor}-{number}");
        }
    }
    found
}

#[test]
fn links_and_anchors_are_found_where_they_are() {
    let page = "# A `b`: c\n\n[x](y.md#z), `[no](no)` and [w](#v)\n```\n[no](no)\n# no\n```\n    [u](t)\n## D\n## D\n";
    assert_eq!(links(page), ["y.md#z", "#v", "t"]);
    assert_eq!(anchors(page), BTreeSet::from(["a-b-c", "d", "d-1"].map(str::to_owned)));
}

/// Address prefixes of files and directories of this repository.
const BROWSED: [&str; 2] =
    ["https://github.com/kubegc/kubegc/blob/main/", "https://github.com/kubegc/kubegc/tree/main/"];

/// Links of pages in docs/ must lead to pages in docs/, since the book has nothing else, or to this repository on its host. A
/// README.md would have another name in the book.
#[test]
fn every_link_leads_somewhere() {
    let pages = pages();
    let docs = repository().join("docs");
    let book = docs.canonicalize().unwrap();
    let (mut followed, mut broken) = (0, BTreeSet::new());
    for (path, text) in &pages {
        for link in links(text) {
            let browsed = BROWSED.iter().find_map(|host| link.strip_prefix(host));
            if browsed.is_some_and(|file| !repository().join(file).exists()) {
                broken.insert(format!("{}: {link}", path.display()));
            }
            if link.contains("://") || link.starts_with("mailto:") {
                continue;
            }
            followed += 1;
            let (target, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let file = if target.is_empty() { path.clone() } else { path.parent().unwrap().join(target) };
            let file = file.canonicalize().unwrap_or(file);
            let is_in_book =
                !path.starts_with(&docs) || file.starts_with(&book) && !file.ends_with("README.md");
            let leads = is_in_book
                && file.exists()
                && (anchor.is_empty()
                    || std::fs::read_to_string(&file).is_ok_and(|text| anchors(&text).contains(anchor)));
            if !leads {
                broken.insert(format!("{}: {link}", path.display()));
            }
        }
    }
    assert!(followed > 50, "only {followed} links found: is this test reading the right files?");
    assert!(broken.is_empty(), "links that lead nowhere: {broken:#?}");
}

/// Former words of this project for those in docs/glossary.md.
const OLD_WORDS: [&str; 20] = [
    "anew",
    "gets on",
    "goes on",
    "hang",
    "hanging",
    "hangs",
    "hear",
    "heard",
    "hears",
    "hung",
    "let go",
    "lets go",
    "looked at",
    "looks at",
    "nobody",
    "outbox",
    "shelf",
    "so many",
    "told",
    "witness",
];

/// Returns the old words that a text contains.
fn old_words(text: &str) -> Vec<&'static str> {
    let words: Vec<String> = text
        .split(|character: char| !character.is_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect();
    let text = format!(" {} ", words.join(" "));
    OLD_WORDS.into_iter().filter(|word| text.contains(&format!(" {word} "))).collect()
}

#[test]
fn old_words_are_found_whole_and_in_any_case() {
    assert_eq!(
        old_words("Nobody was told that she hears; it lets\n go."),
        ["hears", "lets go", "nobody", "told"]
    );
    assert_eq!(old_words("a hearing of untold renewals"), [""; 0]);
}

/// docs/reference contains the help texts of every command.
#[test]
fn documents_and_comments_use_the_words_of_the_glossary() {
    let is_current = |path: &&PathBuf| !path.ends_with("docs/glossary.md") && !path.ends_with("CHANGELOG.md");
    let (mut pages, mut comments) = (pages(), texts(&repository().join("crates"), ".rs"));
    pages.retain(|path, _| is_current(&path) && !path.components().any(|part| part.as_os_str() == "spec"));
    for text in pages.values_mut() {
        *text = prose(text).map(without_code).collect::<Vec<_>>().join("\n");
    }
    for text in comments.values_mut() {
        let lines = text.lines().filter_map(|line| line.trim_start().strip_prefix("//"));
        *text = lines.map(without_code).collect::<Vec<_>>().join("\n");
    }
    let found: Vec<String> = pages
        .iter()
        .chain(&comments)
        .flat_map(|(path, text)| {
            old_words(text).into_iter().map(|word| format!("{}: {word}", path.display()))
        })
        .collect();
    assert!(comments.values().map(String::len).sum::<usize>() > 500_000, "are these the right files?");
    assert!(found.is_empty(), "docs/glossary.md has better words: {found:#?}");
}

/// Words that a doc comment should not open with: a clause as a subject makes a reader wait for the noun.
const CLAUSE_OPENERS: [&str; 11] = [
    "What",
    "Which",
    "Who",
    "Whose",
    "Whom",
    "Whether",
    "How",
    "Whoever",
    "Whatever",
    "Whichever",
    "Whomever",
];

/// Returns the first word of each comment in a file, where a comment is a run of lines with the same comment marker.
fn comment_openings(text: &str) -> Vec<&str> {
    let mut openings = Vec::new();
    let mut previous = None;
    for line in text.lines() {
        let comment = line.trim_start();
        let marker = ["///", "//!", "//"].into_iter().find(|marker| comment.starts_with(marker));
        if let Some(marker) = marker
            && previous != Some(marker)
        {
            let words = comment[marker.len()..].trim_start();
            openings.push(words.split(|letter: char| !letter.is_alphanumeric()).next().unwrap_or_default());
        }
        previous = marker;
    }
    openings
}

#[test]
fn openings_of_comments_are_found() {
    let text =
        "//! What is here.\n//! Which follows.\n\n/// Returns it.\nfn f() {\n    // How it works.\n}\n";
    assert_eq!(comment_openings(text), ["What", "Returns", "How"]);
}

#[test]
fn comments_open_with_a_verb_or_a_noun() {
    let sources = texts(&repository().join("crates"), ".rs");
    let openings: Vec<&str> = sources.values().flat_map(|text| comment_openings(text)).collect();
    let clauses = openings.iter().filter(|word| CLAUSE_OPENERS.contains(word)).count();
    assert!(openings.len() > 10_000, "only {} comments found", openings.len());
    assert!(
        clauses * 100 <= openings.len() * 3,
        "{clauses} of {} comments open with What, Which, Who, Whether or How; at most 3 in 100 may. Begin with a verb in the third person (functions) or a noun phrase (types, fields)",
        openings.len(),
    );
}

#[test]
fn every_page_is_in_the_book() {
    let docs = repository().join("docs");
    let summary = std::fs::read_to_string(docs.join("SUMMARY.md")).unwrap();
    let listed = links(&summary);
    let unique: BTreeSet<PathBuf> = listed.iter().map(|link| docs.join(link)).collect();
    assert_eq!(unique.len(), listed.len(), "SUMMARY.md lists a page twice");
    let mut written: BTreeSet<PathBuf> = texts(&docs, ".md").into_keys().collect();
    assert!(written.remove(&docs.join("SUMMARY.md")));
    assert_eq!(unique, written, "docs/SUMMARY.md and the pages in docs/ differ");
}

#[test]
fn every_decision_names_its_alternative() {
    let page = std::fs::read_to_string(repository().join("docs/decisions.md")).unwrap();
    let decisions: Vec<&str> = page.split("\n### ").skip(1).collect();
    let names_one =
        |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ").contains("*Instead of* ");
    let without: Vec<&str> =
        decisions.iter().filter(|text| !names_one(text)).filter_map(|text| text.lines().next()).collect();
    assert!(decisions.len() > 40, "only {} decisions found", decisions.len());
    assert!(without.is_empty(), "decisions without an alternative: {without:#?}");
}

#[test]
fn the_generated_pages_are_current() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kubegc"));
    assert!(command.arg("reference").arg(folder.path()).status().unwrap().success());
    let named = |pages: BTreeMap<PathBuf, String>| -> BTreeMap<_, _> {
        pages.into_iter().map(|(path, text)| (path.file_name().unwrap().to_owned(), text)).collect()
    };
    let generated = named(texts(folder.path(), ".md"));
    let docs = repository().join("docs");
    // A page that claims to be generated but is no longer written by the command would stay outdated for ever.
    let mut committed = named(texts(&docs.join("reference"), ".md"));
    committed.retain(|name, text| generated.contains_key(name) || text.contains("generates this page"));
    assert_eq!(committed, generated, "run `cargo run -- reference docs/reference`");
    let collectors = std::fs::read_to_string(docs.join("reference/collectors.md")).unwrap();
    let missing: Vec<&str> = generated[std::ffi::OsStr::new("permissions.md")]
        .lines()
        .filter_map(|line| line.strip_prefix("## "))
        .filter(|name| !collectors.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "docs/reference/collectors.md does not describe {missing:?}");
}

/// Returns the tables of docs/reference/collectors.md: names and accounts, then the watched resources and the flags of each collector.
fn collector_tables() -> String {
    let code = |words: &[String]| words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(", ");
    let row = |cells: &[String]| {
        let cells: Vec<String> = cells
            .iter()
            .map(|cell| if cell.is_empty() { String::new() } else { format!(" {cell}") })
            .collect();
        format!("|{} |\n", cells.join(" |"))
    };
    let (mut names, mut details) = (String::new(), String::new());
    for one in &COLLECTORS {
        let alias: Vec<String> = one.alias.iter().map(ToString::to_string).collect();
        let default = if one.on_by_default { "on" } else { "off" };
        let (name, account) = (code(&[one.name.to_owned()]), code(&[one.account.to_owned()]));
        names += &row(&[one.summary.to_owned(), name.clone(), code(&alias), account, default.to_owned()]);
        let watches = match one.watches {
            Watches::Everything => "everything".to_owned(),
            Watches::ByPolicies => "what policies name".to_owned(),
            Watches::Kinds(kinds) => {
                let resources = kinds.iter().map(|kind| {
                    let gvr = kind.info().gvr;
                    let dot = if gvr.group.is_empty() { "" } else { "." };
                    format!("{}{dot}{}", gvr.resource, gvr.group)
                });
                code(&resources.collect::<Vec<_>>())
            }
        };
        let flags: Vec<String> = one.flags.iter().map(|flag| format!("--{flag}")).collect();
        details += &row(&[name, watches, code(&flags)]);
    }
    format!(
        "| collector | name | alias | account | default |\n|---|---|---|---|---|\n{names}\n\
         What each watches, and its own flags:\n\n| name | watches | flags |\n|---|---|---|\n{details}"
    )
}

#[test]
fn the_tables_of_collectors_are_those_of_the_code() {
    let page = std::fs::read_to_string(repository().join("docs/reference/collectors.md")).unwrap();
    let tables = collector_tables();
    assert!(page.contains(&tables), "docs/reference/collectors.md should contain:\n{tables}");
}
