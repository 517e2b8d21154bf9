//! Runs the body of a fuzz target in a test: on its committed corpus, and on mutations of it that are the same in every run. Set
//! `FUZZ_CASES=100000` to try more.

use std::hash::Hasher as _;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::{Path, PathBuf};

use fnv::FnvHasher;

/// Default number of mutations.
const CASES: u64 = 4_000;
/// Maximum length of a generated input, in bytes.
const LONGEST: usize = 16 << 10;
/// Values at the edges of number ranges, formats and languages.
const SPICES: [&[u8]; 32] = [
    b"\0",
    b"\n",
    b"\xff",
    b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    b"\x80\x80\x80\x80\x80\x80\x80\x80\x80\x02",
    b"\x0a\x00",
    b"\xc3\xa4",
    b"\xe2\x82",
    b"0",
    b"-1",
    b"-0",
    b"9223372036854775807",
    b"-9223372036854775808",
    b"18446744073709551616",
    b"1e400",
    b"1e-400",
    b"0.1",
    b"null",
    b"true",
    b"\"\"",
    b"[]",
    b"{}",
    b"[[[[[[[[",
    b"{\"a\":{\"a\":",
    b"\\u0000",
    b"\\ud800",
    b"%00",
    b"..",
    b"&a *a",
    b"a: ",
    b"9999-12-31T23:59:59Z",
    b"-9999-01-01T00:00:00Z",
];

/// Writes one test per target, named like its body; the bodies must be in the same module.
#[macro_export]
macro_rules! replay_tests {
    ($($target:ident),+ $(,)?) => {
        mod tests {
            $(#[test]
            fn $target() {
                $crate::replay(stringify!($target), super::$target);
            })+
        }
    };
}

/// Runs a target's body on its corpus and on mutations of it. Panics if an input breaks a property.
pub fn replay(target: &str, body: fn(&[u8])) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    assert!(fuzz.join(format!("fuzz_targets/{target}.rs")).exists(), "{target} is no fuzz target");
    let folder = fuzz.join("corpus").join(target);
    let corpus = read(&folder);
    println!("{} inputs from {}", corpus.len(), folder.display());
    assert!(!corpus.is_empty(), "{} holds no inputs", folder.display());
    for (file, input) in &corpus {
        judge(body, input, || file.display().to_string());
    }
    let cases = std::env::var("FUZZ_CASES").ok().and_then(|text| text.parse().ok()).unwrap_or(CASES);
    let inputs: Vec<&[u8]> = corpus.iter().map(|(_, input)| input.as_slice()).collect();
    for case in 0..cases {
        let input = Mutator(case ^ seed(target)).input(&inputs);
        judge(body, &input, || format!("mutation {case}"));
    }
}

fn read(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let listed = std::fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut files: Vec<PathBuf> = listed.map(|entry| entry.expect("a folder is listed").path()).collect();
    files.sort();
    files.into_iter().map(|file| (file.clone(), std::fs::read(&file).expect("a file is read"))).collect()
}

fn judge(body: fn(&[u8]), input: &[u8], called: impl Fn() -> String) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| body(input))) {
        eprintln!("{} breaks a law: b\"{}\"", called(), input.escape_ascii());
        resume_unwind(panic);
    }
}

/// Returns a seed that depends only on the target, so each target tries the same mutations in every run.
fn seed(target: &str) -> u64 {
    let mut hash = FnvHasher::default();
    hash.write(target.as_bytes());
    hash.finish()
}

/// Generates inputs from other inputs.
struct Mutator(u64);

impl Mutator {
    /// Returns the next number of splitmix64.
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    /// Returns a number below the bound, or 0 if the bound is 0.
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.number() % bound.max(1) as u64).unwrap_or_default()
    }

    fn input(&mut self, corpus: &[&[u8]]) -> Vec<u8> {
        let mut input = corpus[self.below(corpus.len())].to_vec();
        for _ in 0..=self.below(4) {
            let other = corpus[self.below(corpus.len())];
            // Changes of whole words leave each word intact, and many results still parse.
            if self.below(2) == 0 {
                self.change_words(&mut input, other);
            } else {
                self.change_bytes(&mut input, other);
            }
        }
        input.truncate(LONGEST);
        input
    }

    fn change_words(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let (here, there) = (words(input), words(other));
        if here.is_empty() || there.is_empty() {
            return;
        }
        let old = here[self.below(here.len())].clone();
        let first = self.below(there.len());
        let last = (first + self.below(4)).min(there.len() - 1);
        let new = match self.below(6) {
            0 => Vec::new(),
            1 => input[old.clone()].repeat(2),
            2 => input[here[self.below(here.len())].clone()].to_vec(),
            3 => SPICES[self.below(SPICES.len())].to_vec(),
            4 => other[there[first].start..there[last].end].to_vec(),
            _ => other[there[first].clone()].to_vec(),
        };
        input.splice(old, new);
    }

    fn change_bytes(&mut self, input: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(input.len() + 1);
        let end = (at + self.below(8) + 1).min(input.len());
        match self.below(6) {
            0 if at < input.len() => input[at] ^= 1 << self.below(8),
            1 if at < input.len() => input[at] = self.number().to_le_bytes()[0],
            2 => drop(input.drain(at.min(end)..end)),
            3 => input.truncate(at),
            4 => drop(input.splice(at..at, SPICES[self.below(SPICES.len())].iter().copied())),
            _ => {
                let from = self.below(other.len() + 1);
                input.truncate(at);
                input.extend_from_slice(&other[from..]);
            }
        }
    }
}

/// Splits an input into runs of letters and digits, quoted texts, and single bytes.
fn words(input: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(&first) = input.get(at) {
        let rest = &input[at + 1..];
        let more = match first {
            b'"' => rest.iter().position(|byte| *byte == b'"').map_or(0, |end| end + 1),
            _ if first.is_ascii_alphanumeric() => {
                rest.iter().take_while(|byte| byte.is_ascii_alphanumeric()).count()
            }
            _ => 0,
        };
        found.push(at..at + 1 + more);
        at += 1 + more;
    }
    found
}
