//! Dependencies between the files of a crate, read from their text: `use` items and paths, without tests.
//!
//! A path leads to the file that defines the name, through re-exports and the imports of a parent. A file's use of its ancestors is
//! not counted: a module and its directory are one unit.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

/// A module, as the names that lead to it from the crate's root.
pub(crate) type Module = Vec<String>;

/// Names that a module imports or re-exports, with the path that each stands for.
type Names = BTreeMap<String, Vec<String>>;

#[derive(Default)]
struct Source {
    /// Text of the module without comments, strings, tests and `use` items.
    code: String,
    /// Every imported path, with the name that it gets.
    imports: Vec<(Vec<String>, String)>,
    /// The imported paths by name.
    names: Names,
    /// Names that the module re-exports.
    exports: BTreeSet<String>,
}

/// Modules of a crate.
pub(crate) struct Sources(BTreeMap<Module, Source>);

impl Sources {
    /// Reads a crate from the directory of its library or, without one, of its binary.
    pub(crate) fn read(folder: &Path) -> Self {
        let mut modules = BTreeMap::new();
        let roots = ["lib.rs", "main.rs"].map(|name| folder.join(name));
        let root = roots.iter().find(|path| path.exists()).unwrap();
        read_module(&mut modules, &Vec::new(), root, folder);
        let paths: BTreeSet<Module> = modules.keys().cloned().collect();
        for (module, source) in &mut modules {
            separate_imports(source, module, &paths);
        }
        Self(modules)
    }

    /// Returns the modules that each one uses, except its ancestors.
    pub(crate) fn uses(&self) -> BTreeMap<&Module, BTreeSet<&Module>> {
        self.0.iter().map(|(module, source)| (module, self.used_by(module, source))).collect()
    }

    fn used_by(&self, module: &Module, source: &Source) -> BTreeSet<&Module> {
        let mut used = BTreeSet::new();
        for (path, name) in &source.imports {
            // A re-export uses nothing, unless the module uses the name itself.
            if !source.exports.contains(name) || words(&source.code).any(|word| word == name) {
                used.insert(self.definer(path, 0));
            }
            if name == "*" {
                used.extend(self.used_of_all(path, source));
            }
        }
        for path in qualified(&source.code) {
            let start = source.names.get(&path[0]).filter(|start| self.0.contains_key(*start));
            let path = match start {
                Some(start) => Some([start.clone(), path[1..].to_vec()].concat()),
                None => absolute(&path, module, |child| self.0.contains_key(child)),
            };
            used.extend(path.map(|path| self.definer(&path, 0)));
        }
        used.retain(|other| !module.starts_with(other));
        used
    }

    /// Returns the modules that define the names used through a glob import: the re-exported names that occur.
    fn used_of_all(&self, path: &[String], source: &Source) -> BTreeSet<&Module> {
        let Some(module) = self.0.get(&path[..path.len() - 1]) else { return BTreeSet::new() };
        let occurring: BTreeSet<&str> = words(&source.code).collect();
        let used = module.exports.iter().filter(|name| occurring.contains(name.as_str()));
        used.map(|name| self.definer(&module.names[name], 0)).collect()
    }

    /// Returns the module that defines the target of a path.
    fn definer(&self, path: &[String], depth: usize) -> &Module {
        const LONGEST_CHAIN: usize = 8;
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length])).unwrap();
        let (module, source) = self.0.get_key_value(&path[..length]).unwrap();
        match path.get(length).and_then(|name| source.names.get(name)) {
            Some(next) if depth < LONGEST_CHAIN && next[..] != *path => {
                self.definer(&[next, &path[length + 1..]].concat(), depth + 1)
            }
            _ => module,
        }
    }
}

fn read_module(modules: &mut BTreeMap<Module, Source>, module: &Module, file: &Path, folder: &Path) {
    let code = without_tests(&without_text(&std::fs::read_to_string(file).unwrap()));
    let children: Vec<String> = declarations(&code, "mod").map(|name| name.trim().to_owned()).collect();
    modules.insert(module.clone(), Source { code, ..Source::default() });
    for name in children {
        let file = folder.join(format!("{name}.rs"));
        if file.exists() {
            read_module(modules, &[module.clone(), vec![name.clone()]].concat(), &file, &folder.join(&name));
        }
    }
}

/// Removes the `use` items from the code.
fn separate_imports(source: &mut Source, module: &Module, modules: &BTreeSet<Module>) {
    let code = std::mem::take(&mut source.code);
    for item in declarations(&code, "use") {
        let before = code[..offset(&code, item)].strip_suffix("use").unwrap().trim_end();
        let is_public = before.ends_with("pub") || before.ends_with(')');
        for (path, name) in leaves(item, &[]) {
            let Some(path) = absolute(&path, module, |child| modules.contains(child)) else { continue };
            if is_public {
                source.exports.insert(name.clone());
            }
            source.names.insert(name.clone(), path.clone());
            source.imports.push((path, name));
        }
    }
    let mut rest = code.clone();
    for item in declarations(&code, "use") {
        rest = rest.replace(&format!("use{item};"), "");
    }
    source.code = rest;
}

/// Returns the offset of a part in a text.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr().addr() - text.as_ptr().addr()
}

/// Returns the text between a keyword and the next semicolon, for each item without a block.
fn declarations<'a>(code: &'a str, keyword: &'a str) -> impl Iterator<Item = &'a str> {
    code.match_indices(keyword).filter_map(move |(start, _)| {
        let rest = &code[start + keyword.len()..];
        let is_word = rest.starts_with(char::is_whitespace) && !code[..start].ends_with(is_name);
        let item = &rest[..rest.find(';')?];
        (is_word && (keyword == "use" || !item.contains('{'))).then_some(item)
    })
}

/// Returns the paths of an import tree, each with the name that it gets.
fn leaves(tree: &str, before: &[String]) -> Vec<(Vec<String>, String)> {
    let tree = tree.trim();
    let Some((head, group)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").map_or((tree, None), |(path, name)| (path, Some(name)));
        let mut path = [before, &segments(path)].concat();
        if path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = alias.map(|name| name.trim().to_owned()).or_else(|| path.last().cloned());
        return name.map(|name| (path, name)).into_iter().collect();
    };
    let before = [before, &segments(head)].concat();
    let group = group.trim_end().trim_end_matches('}');
    let (mut depth, mut start, mut parts) = (0_i32, 0, Vec::new());
    for (at, letter) in group.char_indices() {
        depth += i32::from(letter == '{') - i32::from(letter == '}');
        if letter == ',' && depth == 0 {
            parts.push(&group[start..at]);
            start = at + 1;
        }
    }
    parts.push(&group[start..]);
    // The braces trimmed above belong to the last part.
    let last = parts.pop().map(|part| format!("{part}{}", "}".repeat(usize::try_from(depth).unwrap_or(0))));
    parts.into_iter().chain(last.as_deref()).flat_map(|part| leaves(part, &before)).collect()
}

fn segments(path: &str) -> Vec<String> {
    path.split("::").map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}

/// Returns a path from the crate's root, if it leads into the crate.
fn absolute(path: &[String], module: &Module, exists: impl Fn(&[String]) -> bool) -> Option<Vec<String>> {
    let (first, rest) = path.split_first()?;
    match first.as_str() {
        "crate" => Some(rest.to_vec()),
        "self" => Some([module, rest].concat()),
        "super" => {
            let parents = path.iter().take_while(|part| *part == "super").count();
            let base = &module[..module.len().checked_sub(parents)?];
            Some([base, &path[parents..]].concat())
        }
        _ => {
            let child = [module.as_slice(), std::slice::from_ref(first)].concat();
            exists(&child).then(|| [module, path].concat())
        }
    }
}

fn is_name(letter: char) -> bool {
    letter.is_alphanumeric() || letter == '_'
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|letter| !is_name(letter))
}

/// Returns the paths of more than one segment in code.
fn qualified(code: &str) -> Vec<Vec<String>> {
    let parts = code.split(|letter: char| !is_name(letter) && letter != ':');
    parts.filter(|part| part.contains("::")).map(segments).filter(|path| path.len() > 1).collect()
}

/// Returns the code without comments and without the content of strings and character literals.
fn without_text(code: &str) -> String {
    let mut out = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(letter) = rest.chars().next() {
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if letter == '"' {
            string_length(rest)
        } else if (rest.starts_with("r\"") || rest.starts_with("r#")) && !out.ends_with(is_name) {
            let hashes = rest[1..].bytes().take_while(|byte| *byte == b'#').count();
            let end = format!("\"{}", "#".repeat(hashes));
            match rest[1 + hashes..].strip_prefix('"').and_then(|text| text.find(&end)) {
                Some(text) => 2 + hashes + text + end.len(),
                None => 1,
            }
        } else if letter == '\'' {
            literal_length(rest)
        } else {
            out.push(letter);
            letter.len_utf8()
        };
        rest = &rest[length..];
    }
    out
}

fn string_length(code: &str) -> usize {
    let mut escaped = false;
    let end = code[1..].bytes().position(|byte| {
        let is_end = byte == b'"' && !escaped;
        escaped = byte == b'\\' && !escaped;
        is_end
    });
    end.map_or(code.len(), |end| end + 2)
}

/// Returns the length of a character literal, or of the quote of a lifetime.
fn literal_length(code: &str) -> usize {
    let mut letters = code.char_indices().skip(1);
    match letters.next() {
        Some((_, '\\')) => {
            code[2..].char_indices().skip(1).find(|(_, letter)| *letter == '\'').map_or(1, |(at, _)| at + 3)
        }
        _ => letters.next().filter(|(_, letter)| *letter == '\'').map_or(1, |(at, _)| at + 1),
    }
}

/// Returns the code without items that exist only for tests.
fn without_tests(code: &str) -> String {
    const MARKS: [&str; 3] = ["#[cfg(test)]", "#[cfg(any(test", "#[cfg(all(test"];
    let mut out = String::new();
    let mut rest = code;
    while let Some(start) = MARKS.iter().filter_map(|mark| rest.find(mark)).min() {
        out.push_str(&rest[..start]);
        let item = &rest[start + rest[start..].find(']').unwrap() + 1..];
        let end = item.find([';', '{']).unwrap();
        let is_block = item[end..].starts_with('{') && !words(&item[..end]).any(|word| word == "use");
        let length = if is_block { end + block_length(&item[end..]) } else { item.find(';').unwrap() + 1 };
        rest = &item[length..];
    }
    out + rest
}

fn block_length(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, letter) in code.bytes().enumerate() {
        match letter {
            b'{' => depth += 1,
            b'}' if depth == 1 => return at + 1,
            b'}' => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Returns the dependencies between the modules of a crate's root, where a file and its directory are one unit.
pub(crate) fn between_folders<'a>(
    uses: &BTreeMap<&'a Module, BTreeSet<&'a Module>>,
) -> BTreeMap<&'a Module, BTreeSet<&'a Module>> {
    let root_of =
        |module: &Module| uses.keys().copied().find(|root| root.len() == 1 && module.starts_with(root));
    let mut found: BTreeMap<&Module, BTreeSet<&Module>> = BTreeMap::new();
    for (module, used) in uses {
        let Some(root) = root_of(module) else { continue };
        let used = used.iter().filter_map(|other| root_of(other)).filter(|other| *other != root);
        found.entry(root).or_default().extend(used);
    }
    found
}

/// Returns the groups of more than one module that reach one another.
pub(crate) fn circles<'a>(uses: &BTreeMap<&'a Module, BTreeSet<&'a Module>>) -> Vec<BTreeSet<&'a Module>> {
    let reach: BTreeMap<_, BTreeSet<&Module>> =
        uses.keys().map(|module| (*module, reached(uses, module))).collect();
    let mut found = BTreeSet::new();
    for (module, others) in &reach {
        let circle: BTreeSet<_> =
            others.iter().copied().filter(|other| reach[other].contains(module)).collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

fn reached<'a>(uses: &BTreeMap<&'a Module, BTreeSet<&'a Module>>, from: &Module) -> BTreeSet<&'a Module> {
    let (mut seen, mut queue): (BTreeSet<&Module>, Vec<&Module>) =
        (BTreeSet::new(), uses[from].iter().copied().collect());
    while let Some(module) = queue.pop() {
        if seen.insert(module) {
            queue.extend(&uses[module]);
        }
    }
    seen
}
