//! The objects of a kind with their dependents, as rows that open and close (`:xray KIND`).

use std::collections::BTreeSet;

use super::model::{ListedObject, ObjectPlace, Row};

/// Number of objects up to which a forest is expanded at first.
const OPEN_UP_TO: usize = 1_000;

/// An object with its dependents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Branch {
    pub(crate) uid: String,
    pub(crate) object: ListedObject,
    /// A fault of its reference, or a remark that it is also shown elsewhere; empty if neither.
    pub(crate) remark: String,
    pub(crate) below: Vec<Branch>,
    /// Number of objects below it that were left out.
    pub(crate) omitted: usize,
}

/// The objects of a kind, and what could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Forest {
    pub(crate) trees: Vec<Branch>,
    /// Number of objects of the kind that were left out.
    pub(crate) omitted: usize,
    pub(crate) unseen: Option<String>,
}

/// A forest with its open and closed branches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Xray {
    /// The forest; `None` until the answer arrives.
    forest: Option<Forest>,
    is_open: bool,
    /// Objects that are closed although the others are open, or the reverse.
    exceptions: BTreeSet<String>,
}

/// A branch that is shown: the prefix that leads to it, its depth, and whether it is open.
struct ShownBranch<'a> {
    prefix: String,
    branch: &'a Branch,
    depth: usize,
    is_open: bool,
}

/// A line of the view.
enum ShownLine<'a> {
    Branch(ShownBranch<'a>),
    /// Number of objects that were left out, after the prefix that leads to them.
    Omitted(String, usize),
}

impl Branch {
    fn size(&self) -> usize {
        1 + self.below.iter().map(Self::size).sum::<usize>()
    }

    fn fits(&self, words: &[String]) -> bool {
        let text =
            [&self.object.place.title(), &self.object.place.namespace, &self.object.status(), &self.remark];
        let text = text.map(|part| part.to_lowercase()).join(" ");
        words.iter().all(|word| text.contains(word)) || self.below.iter().any(|below| below.fits(words))
    }
}

impl Xray {
    /// Takes an answer. Branches stay open or closed.
    pub(super) fn learn(&mut self, forest: Forest) {
        if self.forest.is_none() {
            let size: usize = forest.trees.iter().map(Branch::size).sum();
            self.is_open = size <= OPEN_UP_TO;
            self.exceptions.clear();
        }
        self.forest = Some(forest);
    }

    /// Returns the number of objects of the kind, once it is known.
    pub(super) fn number(&self) -> Option<usize> {
        self.forest.as_ref().map(|forest| forest.trees.len() + forest.omitted)
    }

    /// Opens a branch or closes it.
    pub(super) fn toggle(&mut self, uid: &str) {
        if !self.exceptions.remove(uid) {
            self.exceptions.insert(uid.to_owned());
        }
    }

    /// Opens all branches, or closes them.
    pub(super) fn toggle_all(&mut self) {
        self.is_open = !self.is_open;
        self.exceptions.clear();
    }

    /// Opens the branch of a row. Returns the row to select next: the first one below it if it was open already.
    pub(super) fn open(&mut self, row: usize, filter: &str) -> usize {
        match self.at(row, filter) {
            Some((uid, false, _)) => self.toggle(&uid),
            Some((_, true, _)) => return row + 1,
            None => {}
        }
        row
    }

    /// Closes the branch of a row. Returns the row to select next: the one above it in the tree if it was closed already.
    pub(super) fn close(&mut self, row: usize, filter: &str) -> usize {
        match self.at(row, filter) {
            Some((uid, true, _)) => {
                self.toggle(&uid);
                row
            }
            _ => self.above(row, filter).unwrap_or(row),
        }
    }

    /// Opens or closes the branch of a row, if anything is below it.
    pub(super) fn turn(&mut self, row: usize, filter: &str) {
        if let Some((uid, ..)) = self.at(row, filter) {
            self.toggle(&uid);
        }
    }

    /// Returns the UID, state and depth of the branch of a row; `None` if nothing is below it.
    fn at(&self, row: usize, filter: &str) -> Option<(String, bool, usize)> {
        match self.shown(filter).into_iter().nth(row)? {
            ShownLine::Branch(ShownBranch { branch, is_open, depth, .. }) if !branch.below.is_empty() => {
                Some((branch.uid.clone(), is_open, depth))
            }
            _ => None,
        }
    }

    fn above(&self, row: usize, filter: &str) -> Option<usize> {
        let lines = self.shown(filter);
        let depth = |line: &ShownLine<'_>| match line {
            ShownLine::Branch(shown) => shown.depth,
            ShownLine::Omitted(..) => usize::MAX,
        };
        let own = depth(lines.get(row)?);
        lines[..row].iter().rposition(|line| depth(line) < own)
    }

    /// Returns the rows of open branches or, with a filter, the matches with what leads to them.
    pub(super) fn rows(&self, filter: &str) -> Vec<Row> {
        let lines = self.shown(filter);
        lines.iter().map(ShownLine::row).collect()
    }

    /// Explains why something is missing, if anything is.
    pub(super) fn unseen(&self) -> Option<&str> {
        self.forest.as_ref().and_then(|forest| forest.unseen.as_deref())
    }

    fn shown(&self, filter: &str) -> Vec<ShownLine<'_>> {
        let words: Vec<String> = filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let Some(forest) = &self.forest else { return Vec::new() };
        let mut lines = Vec::new();
        for tree in forest.trees.iter().filter(|tree| tree.fits(&words)) {
            self.show(tree, (String::new(), String::new()), 0, &words, &mut lines);
        }
        if forest.omitted > 0 {
            lines.push(ShownLine::Omitted(String::new(), forest.omitted));
        }
        lines
    }

    fn show<'a>(
        &'a self,
        branch: &'a Branch,
        (prefix, below): (String, String),
        depth: usize,
        words: &[String],
        lines: &mut Vec<ShownLine<'a>>,
    ) {
        // What a filter has found is not hidden.
        let is_open = !words.is_empty() || (self.is_open != self.exceptions.contains(&branch.uid));
        lines.push(ShownLine::Branch(ShownBranch { prefix, branch, depth, is_open }));
        if !is_open {
            return;
        }
        let shown: Vec<&Branch> = branch.below.iter().filter(|one| one.fits(words)).collect();
        for (index, one) in shown.iter().enumerate() {
            let is_last = index + 1 == shown.len() && branch.omitted == 0;
            let (fork, bar) = if is_last { ("└─ ", "   ") } else { ("├─ ", "│  ") };
            let prefixes = (format!("{below}{fork}"), format!("{below}{bar}"));
            self.show(one, prefixes, depth + 1, words, lines);
        }
        if branch.omitted > 0 {
            lines.push(ShownLine::Omitted(format!("{below}└─ "), branch.omitted));
        }
    }
}

impl ShownLine<'_> {
    /// Returns the cells: namespace, object, READY, STATUS, age.
    fn row(&self) -> Row {
        let ShownBranch { prefix, branch, depth, is_open } = match self {
            Self::Branch(shown) => shown,
            Self::Omitted(prefix, number) => {
                let text = format!("{prefix}… and {} more", gc_explain::text::thousands(*number));
                return Row { cells: vec![String::new(), text], ..Row::default() };
            }
        };
        let Branch { object, remark, below, .. } = branch;
        let mark = match (below.is_empty(), is_open) {
            (true, _) => "",
            (false, true) => "▾ ",
            (false, false) => "▸ ",
        };
        let ObjectPlace { namespace, .. } = &object.place;
        let status = [object.status(), remark.clone()];
        let status = status.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
        Row {
            cells: vec![
                if *depth == 0 { namespace.clone() } else { String::new() },
                format!("{prefix}{mark}{}", object.place.title()),
                object.ready.clone(),
                status,
                object.age(),
            ],
            place: Some(object.place.clone()),
            is_bad: object.is_terminating,
            ..Row::default()
        }
    }
}
