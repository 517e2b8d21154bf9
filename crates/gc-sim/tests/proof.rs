//! docs/proof.md describes these tests: its figures and its tables of planted defects must match the code.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use std::collections::{BTreeMap, BTreeSet};

use gc_sim::{defects, workloads};

const PAGE: &str = include_str!("../../../docs/proof.md");
const LIARS: &str = include_str!("liars.rs");
const MUTATIONS: &str = include_str!("mutations.rs");
const SHARDS: &str = include_str!("shards.rs");
const SMALL: &str = include_str!("small.rs");
const WORKLOADS: &str = include_str!("workloads.rs");
const WORLDS: &str = include_str!("worlds.rs");

/// Returns the value of a constant in a source.
fn constant(source: &str, name: &str) -> usize {
    let start = format!("const {name}: u64 = ");
    let value = source.split(&start).nth(1).and_then(|rest| rest.split(';').next());
    value.unwrap_or_else(|| panic!("no {name}")).replace('_', "").parse().unwrap()
}

/// Returns a number as the page writes it.
fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let groups = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(",")
}

fn section(heading: &str) -> &'static str {
    let start = PAGE.find(&format!("\n## {heading}\n")).unwrap() + 4;
    &PAGE[start..PAGE[start..].find("\n## ").map_or(PAGE.len(), |end| start + end)]
}

/// Returns the cells of every row of the tables in a section.
fn rows(heading: &str) -> Vec<Vec<&'static str>> {
    let rows = section(heading).lines().filter(|line| line.starts_with("| "));
    rows.map(|row| row.trim_matches('|').split(" | ").map(str::trim).collect()).collect()
}

/// Returns the page with one space between words, whatever its line breaks.
fn text() -> String {
    PAGE.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_planted_defect_is_in_the_table_with_what_it_is() {
    let known: BTreeMap<&str, &str> =
        defects::DEFECTS.iter().map(|(_, name, description)| (*name, *description)).collect();
    let plain = |text: &str| text.replace('`', "");
    let mut shown = BTreeSet::new();
    for row in rows("Planted defects").iter().filter(|row| row.len() > 3) {
        let Some(description) = known.get(row[0]) else {
            assert_eq!(row[0], "defect", "the table has a defect that is not planted");
            continue;
        };
        assert_eq!(plain(row.last().unwrap()), plain(description), "{}", row[0]);
        shown.insert(row[0]);
    }
    let missing: Vec<&&str> = known.keys().filter(|name| !shown.contains(*name)).collect();
    assert!(missing.is_empty(), "docs/proof.md does not have {missing:?}");
}

#[test]
fn figures_are_those_of_the_tests() {
    let worlds = WORLDS.matches("        worlds_").count();
    let liars = LIARS.matches("fn nothing_is_lost_to_a_liar_").count();
    let shards = SHARDS.matches("\n    shards_decide_what_one_decides(").count();
    let elected = SHARDS.matches("\n    elected_shards_decide_what_one_decides(").count();
    let believers = defects::DEFECTS.iter().filter(|(defect, ..)| defect.is_credulity()).count();
    let text = text();
    for sentence in [
        format!("The tests run {} seeds", with_commas(worlds * constant(WORLDS, "SEEDS_PER_TEST"))),
        format!("The tests run {} of them", with_commas(liars * constant(LIARS, "SEEDS_PER_TEST"))),
        format!("The tests run {} of these worlds", with_commas(shards * constant(SHARDS, "SEEDS_PER_TEST"))),
        format!("In {} further worlds", with_commas(elected * constant(SHARDS, "SEEDS_PER_TEST"))),
        format!("{} defects are planted, one at a time", defects::DEFECTS.len()),
        format!(
            "each is found within {} seeds (of those that believe an answer, {}",
            with_commas(constant(MUTATIONS, "SEEDS")),
            with_commas(constant(MUTATIONS, "SEEDS_OF_LIARS"))
        ),
        format!("{believers} defects that believe such an answer are planted"),
        format!("The last {believers} believe what one answer says"),
        format!("{} defects are planted: history", workloads::DEFECTS.len()),
        format!("Each must be noticed within {} seeds", constant(WORKLOADS, "SEEDS_PER_DEFECT")),
    ] {
        assert!(text.contains(&sentence), "docs/proof.md should say: {sentence}");
    }
}

#[test]
fn small_worlds_are_as_many_as_their_tests_visit() {
    let visited = |number: &str| SMALL.contains(&number.replace(',', "_"));
    let rows: Vec<_> = rows("Small worlds").into_iter().filter(|row| row[0] != "objects").collect();
    assert_eq!(rows.len(), 4);
    for row in &rows {
        let numbers = [row[3], row[4]];
        // The worlds of four objects are visited in two halves.
        let halves = numbers.map(|number| with_commas(number.replace(',', "").parse::<usize>().unwrap() / 2));
        assert!(
            numbers.iter().all(|number| visited(number)) || halves.iter().all(|number| visited(number)),
            "{row:?} is not what tests/small.rs visits"
        );
    }
}

#[test]
fn every_oracle_with_a_defect_is_described() {
    let described: BTreeSet<&str> =
        rows("What the oracles check").iter().flat_map(|row| row[0].split(", ")).collect();
    let noticing = MUTATIONS.split("(\"").skip(1).filter_map(|rest| rest.split_once("\", Defect::"));
    let missing: Vec<&str> = noticing
        .map(|(oracle, _)| oracle)
        // The law of liars has its own section.
        .filter(|oracle| *oracle != "law" && !described.contains(oracle))
        .collect();
    assert!(missing.is_empty(), "docs/proof.md does not say what {missing:?} check");
}
