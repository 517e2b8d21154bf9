//! The code blocks of the pages: each is fenced, names its language, and is run by a test or says why not.

use std::collections::{BTreeMap, BTreeSet};

use super::{pages, repository};

/// Reasons for which a block is never run.
const REASONS: [&str; 7] = [
    "needs another cluster",
    "needs another program",
    "configuration of another program",
    "needs a kubelet",
    "needs a release",
    "takes minutes",
    "takes hours",
];
/// Languages that [`super::walks`] runs, applies or checks.
pub(super) const CHECKED: [&str; 7] = ["sh", "console", "yaml", "json", "python", "js", "toml"];
/// Languages that another test reads, and those of output, formats and synopses.
const OTHER: [&str; 2] = ["rust", "text"];
/// Beginnings of lines that a shell would run.
const COMMANDS: [&str; 9] =
    ["$ ", "kubegc ", "kubectl ", "helm ", "cargo ", "scripts/", "curl ", "npm ", "pip "];

/// A code block in a page, without its indentation.
pub(super) struct Block {
    /// Line of the page at which the block begins.
    pub(super) number: usize,
    /// Language of the fence; empty if the block is indented, or its fence names none.
    pub(super) language: String,
    pub(super) lines: Vec<String>,
    pub(super) marks: Marks,
}

impl Block {
    pub(super) fn text(&self) -> String {
        self.lines.join("\n")
    }

    /// Reports whether the walk through its page runs or checks the block.
    pub(super) fn is_walked(&self) -> bool {
        CHECKED.contains(&self.language.as_str()) && self.marks.excuse().is_none()
    }
}

/// Comments right before a block: `<!-- KEY: VALUE -->`.
#[derive(Default)]
pub(super) struct Marks(BTreeMap<String, String>);

impl Marks {
    pub(super) fn get(&self, key: &str) -> Option<&str> {
        self.0.get(key).map(String::as_str)
    }

    /// Returns the reason why the walk omits the block, or the test that runs it instead.
    fn excuse(&self) -> Option<&str> {
        self.get("not run").or_else(|| self.get("run by"))
    }
}

/// Returns the code blocks of a page: fences, and indented text after an empty line.
pub(super) fn blocks(page: &str) -> Vec<Block> {
    let (mut found, mut marks) = (Vec::<Block>::new(), Marks::default());
    let (mut is_fenced, mut is_indented_block, mut after_empty) = (false, false, true);
    let mut comment: Option<String> = None;
    for (number, line) in (1..).zip(page.lines()) {
        let text = line.trim_start();
        let is_indented = line.starts_with("    ");
        if comment.is_some() || (!is_fenced && text.starts_with("<!--")) {
            let mut whole = comment.take().unwrap_or_default();
            whole.push_str(line);
            if let Some((before, _)) = whole.split_once("-->") {
                let inner = before.trim_start().trim_start_matches("<!--");
                let (key, value) = inner.split_once(':').unwrap_or((inner, ""));
                marks.0.insert(key.trim().to_owned(), value.trim().to_owned());
            } else {
                whole.push('\n');
                comment = Some(whole);
            }
        } else if let Some(language) = text.strip_prefix("```") {
            is_fenced = !is_fenced;
            is_indented_block = false;
            if is_fenced {
                let marks = std::mem::take(&mut marks);
                found.push(Block { number, language: language.to_owned(), lines: Vec::new(), marks });
            }
        } else if is_fenced || (is_indented && is_indented_block) || (text.is_empty() && is_indented_block) {
            found.last_mut().unwrap().lines.push(line.to_owned());
        } else {
            is_indented_block = is_indented && after_empty;
            if is_indented_block {
                let marks = std::mem::take(&mut marks);
                let lines = vec![line.to_owned()];
                found.push(Block { number, language: String::new(), lines, marks });
            }
            if !text.is_empty() {
                marks = Marks::default();
            }
        }
        after_empty = text.is_empty();
    }
    for block in &mut found {
        let indented = block.lines.iter().filter(|line| !line.trim().is_empty());
        let margin = indented.map(|line| line.len() - line.trim_start().len()).min().unwrap_or_default();
        block.lines =
            block.lines.iter().map(|line| line.get(margin..).unwrap_or_default().to_owned()).collect();
    }
    found
}

/// Returns the blocks of README.md and of every page in docs/, by the page's path in the repository.
pub(super) fn of_the_book() -> BTreeMap<String, Vec<Block>> {
    let root = repository().canonicalize().unwrap();
    let of_page = |(path, text): (std::path::PathBuf, String)| {
        let path = path.canonicalize().unwrap();
        let name = path.strip_prefix(&root).unwrap().to_string_lossy().into_owned();
        let is_in_book = name == "README.md" || name.starts_with("docs/");
        is_in_book.then(|| (name, blocks(&text)))
    };
    pages().into_iter().filter_map(of_page).collect()
}

/// Returns a problem with a block: each must be run, or say why not.
fn objection(block: &Block) -> Option<String> {
    let language = block.language.as_str();
    if !CHECKED.contains(&language) && !OTHER.contains(&language) {
        let known = CHECKED.iter().chain(&OTHER).copied().collect::<Vec<_>>().join(", ");
        return Some(format!("{language:?} is not a language of blocks: fence it as one of {known}"));
    }
    for (key, value) in &block.marks.0 {
        let is_right = match key.as_str() {
            "not run" => REASONS.contains(&value.as_str()),
            "run by" => repository().join(value).is_file(),
            "setup" | "starts" | "file" | "terminal" => !value.is_empty(),
            "exits" => value.parse::<u8>().is_ok(),
            _ => false,
        };
        if !is_right {
            return Some(format!("<!-- {key}: {value} --> has no meaning"));
        }
    }
    None
}

/// Returns a command that a page presents as output, so nothing runs it.
fn hidden_command(block: &Block) -> Option<&String> {
    // A synopsis stands for several commands, and has the flags of none.
    let is_synopsis = |line: &str| line.contains(['[', '<', '…']) || line.contains(" | ");
    let is_command = |line: &&String| COMMANDS.iter().any(|word| line.starts_with(word));
    let hidden = block.lines.iter().filter(is_command).find(|line| !is_synopsis(line));
    hidden.filter(|_| block.language == "text" && block.marks.excuse().is_none())
}

#[test]
fn blocks_and_their_marks_are_found() {
    let page = "a\n\n<!-- exits: 1 -->\n<!-- setup:\nx\n\ny\n-->\n```sh\nz\n```\n\n<!-- exits: 2 -->\nprose\n\n    old\n";
    let found = blocks(page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].number, found[0].text().as_str()), (9, "z"));
    assert_eq!(found[0].marks.get("exits"), Some("1"));
    assert_eq!(found[0].marks.get("setup"), Some("x\n\ny"));
    assert!(objection(&found[0]).is_none() && found[0].is_walked());
    assert!(found[1].marks.0.is_empty(), "a comment belongs to the block that it is right before");
    assert!(objection(&found[1]).unwrap().contains("not a language"));
    for (page, is_right) in [
        ("```text\nkubegc why pod/a\n```", false),
        ("```text\nkubegc why TYPE/NAME [-n NAMESPACE]\n```", true),
        ("<!-- not run: no time -->\n```sh\na\n```", false),
        ("<!-- not run: takes hours -->\n```sh\na\n```", true),
        ("<!-- run by: no/such/test.rs -->\n```sh\na\n```", false),
        ("<!-- run by: README.md -->\n```sh\na\n```", true),
    ] {
        let block = &blocks(page)[0];
        assert_eq!(objection(block).is_none() && hidden_command(block).is_none(), is_right, "{page}");
    }
}

#[test]
fn every_block_is_run_or_says_why_not() {
    let book = of_the_book();
    let mut wrong = Vec::new();
    let mut used = BTreeSet::new();
    for (page, blocks) in &book {
        for block in blocks {
            used.extend(block.marks.get("not run"));
            wrong.extend(objection(block).map(|why| format!("{page}:{}: {why}", block.number)));
            // The reference is generated, and has the usage of every command.
            let hidden = hidden_command(block).filter(|_| !page.starts_with("docs/reference/"));
            wrong.extend(hidden.map(|line| format!("{page}:{}: nothing runs {line}", block.number)));
        }
    }
    let walked = book.values().flatten().filter(|block| block.is_walked()).count();
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(walked > 60, "only {walked} blocks are run: are these the right pages?");
    let unused: Vec<_> = REASONS.iter().filter(|reason| !used.contains(*reason)).collect();
    assert!(unused.is_empty(), "no block needs these reasons any more: {unused:?}");
}
