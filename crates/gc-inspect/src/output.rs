//! Output formats that all commands share.

use std::io::{IsTerminal as _, Write as _};
use std::str::FromStr;

use gc_process::screen;
use gc_process::table::Table;
use gc_registry::crd::json_path::JsonPath;
use serde_json::Value;

/// Minimum gap between the columns of a table.
const COLUMN_GAP: &str = "  ";
/// Minimum width of a last column that is folded.
const NARROWEST: usize = 16;
/// Indentation of continued lines.
const CONTINUATION_INDENT: usize = 4;
/// Prefixes of commands to copy.
const COMMANDS: [&str; 2] = ["try:", "by force:"];

/// Value of `-o`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Output {
    /// Aligned text.
    #[default]
    Text,
    /// Aligned text with more columns, and nothing folded.
    Wide,
    /// `resource/name`, one per line.
    Name,
    /// JSON.
    Json,
    /// YAML.
    Yaml,
    /// Fields selected by kubectl's JSONPath templates.
    JsonPath(String),
    /// Columns: headings with paths.
    Columns(Vec<(String, String)>),
    /// Graphviz graph.
    Dot,
    /// Mermaid graph.
    Mermaid,
    /// HTML page.
    Html,
}

impl FromStr for Output {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, rest) = text.split_once('=').unwrap_or((text, ""));
        Ok(match name {
            "text" | "table" => Self::Text,
            "wide" => Self::Wide,
            "name" => Self::Name,
            "json" => Self::Json,
            "yaml" => Self::Yaml,
            "dot" => Self::Dot,
            "mermaid" => Self::Mermaid,
            "html" => Self::Html,
            "jsonpath" if !rest.is_empty() => {
                template_parts(rest)?;
                Self::JsonPath(rest.to_owned())
            }
            "custom-columns" if !rest.is_empty() => {
                let column = |column: &str| {
                    let (heading, path) = column.split_once(':').ok_or_else(|| {
                        format!("column {column:?} is not HEADING:PATH, such as CODE:.code")
                    })?;
                    column_path(path)?;
                    Ok((heading.to_owned(), path.to_owned()))
                };
                Self::Columns(rest.split(',').map(column).collect::<Result<_, String>>()?)
            }
            _ => {
                return Err("expected text, wide, name, json, yaml, jsonpath=TEMPLATE, custom-columns=HEADING:PATH,… \
                            or, for plans, dot or mermaid, or, for garbage, html"
                    .into());
            }
        })
    }
}

/// An answer, in all the forms it has.
pub trait Answer {
    /// Converts to JSON. A list of things is under `items`.
    fn value(&self) -> Value;
    /// Writes the answer in human-readable form.
    fn text(&self, is_wide: bool, out: &mut Vec<u8>) -> anyhow::Result<()>;
    /// Returns `resource/name` of each object in the answer.
    fn names(&self) -> Vec<String>;
    /// Formats as an HTML page, if there is one.
    fn html(&self) -> Option<String> {
        None
    }
    /// Returns the answer as a graph: nodes with their labels, and edges.
    fn graph(&self) -> Option<(Vec<String>, Vec<(usize, usize)>)> {
        None
    }
}

/// Prints an answer.
pub fn print(answer: &impl Answer, output: &Output) -> anyhow::Result<()> {
    let invalid = |error: String| gc_process::UsageError::new(format!("--output: {error}"));
    let mut out = Vec::new();
    match output {
        Output::Text | Output::Wide => {
            answer.text(*output == Output::Wide, &mut out)?;
            if let Some(width) = terminal_width() {
                out = folded(&String::from_utf8_lossy(&out), width).into_bytes();
            }
        }
        Output::Name => answer.names().iter().try_for_each(|name| writeln!(out, "{name}"))?,
        Output::Json => {
            let document = serde_json::to_string_pretty(&answer.value())?;
            writeln!(out, "{}", screen::visible_json(&document))?;
        }
        Output::Yaml => write!(out, "{}", gc_process::yaml::to_string(&answer.value())?)?,
        Output::JsonPath(template) => {
            let mut text = String::new();
            fill(&template_parts(template).map_err(invalid)?, &answer.value(), &mut text);
            write!(out, "{text}")?;
        }
        Output::Columns(columns) => {
            let paths = columns.iter().map(|(_, path)| column_path(path)).collect::<Result<Vec<_>, _>>();
            let paths = paths.map_err(invalid)?;
            let headings: Vec<&str> = columns.iter().map(|(heading, _)| heading.as_str()).collect();
            let mut table = Table::new(&headings);
            let value = answer.value();
            let whole = [value.clone()];
            for item in value["items"].as_array().map_or(&whole[..], Vec::as_slice) {
                let cell = |path: &JsonPath| {
                    let found: Vec<String> = path.find(item).into_iter().map(plain).collect();
                    if found.is_empty() { "<none>".to_owned() } else { found.join(",") }
                };
                table.row(paths.iter().map(cell).collect());
            }
            table.write(&mut out)?;
        }
        Output::Html => {
            let page = answer.html();
            let page =
                page.ok_or_else(|| gc_process::UsageError::new("--output: html is a form of garbage"))?;
            write!(out, "{page}")?;
        }
        Output::Dot | Output::Mermaid => {
            let Some((nodes, edges)) = answer.graph() else {
                return Err(gc_process::UsageError::new(
                    "--output: dot and mermaid are forms of plans and trees",
                )
                .into());
            };
            out.extend(graph_text(&nodes, &edges, *output == Output::Dot).bytes());
        }
    }
    write(&out)
}

/// Writes to standard output, unless its reader has closed the pipe.
pub fn write(out: &[u8]) -> anyhow::Result<()> {
    match screen::stdout().write_all(out) {
        // The reader may have closed the pipe.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
        _ => Ok(()),
    }
}

/// Returns an answer as printed to a pipe and to terminals of 80 and 160 columns, and with `-o wide` if that shows more. Tests
/// compare it with the expected output of each command.
pub fn screens(answer: &impl Answer) -> anyhow::Result<String> {
    use std::fmt::Write as _;

    let shown = |is_wide: bool| {
        let mut out = Vec::new();
        answer.text(is_wide, &mut out)?;
        anyhow::Ok(String::from_utf8_lossy(&out).into_owned())
    };
    let (plain, wide) = (shown(false)?, shown(true)?);
    let wide = Some(wide).filter(|wide| *wide != plain).map(|wide| (wide, ", -o wide"));
    let mut text = String::new();
    for (plain, suffix) in [(plain, "")].into_iter().chain(wide) {
        writeln!(text, "==> pipe{suffix}\n{plain}")?;
        for width in [80, 160] {
            let on_terminal = folded(&plain, width);
            if on_terminal == plain {
                writeln!(text, "==> {width} columns{suffix}: the same\n")?;
            } else {
                writeln!(text, "==> {width} columns{suffix}\n{on_terminal}")?;
            }
        }
    }
    Ok(text)
}

/// Returns the number of columns if standard output is a terminal.
fn terminal_width() -> Option<usize> {
    let stdout = std::io::stdout();
    if !stdout.is_terminal() {
        return None;
    }
    terminal_size::terminal_size_of(stdout).map(|(width, _)| usize::from(width.0)).filter(|width| *width > 0)
}

/// Folds long lines between words, and rows of a table within their last column if it has room. Commands to copy stay in one piece.
pub(crate) fn folded(text: &str, width: usize) -> String {
    let mut folded = String::new();
    for line in text.lines() {
        let is_command = COMMANDS.iter().any(|mark| line.trim_start().starts_with(mark));
        if is_command || line.chars().count() <= width {
            folded.push_str(line);
        } else {
            fold(line, width, &mut folded);
        }
        folded.push('\n');
    }
    folded
}

fn fold(line: &str, width: usize, folded: &mut String) {
    let own = line.len() - line.trim_start().len();
    let last_column = line.rfind(COLUMN_GAP).map_or(0, |gap| gap + COLUMN_GAP.len()).max(own);
    let (before, last) = line.split_at(last_column);
    let mut used = before.chars().count();
    let indentation = if before.trim().is_empty() { own + CONTINUATION_INDENT } else { used };
    if indentation + NARROWEST > width {
        folded.push_str(line);
        return;
    }
    folded.push_str(before);
    for (number, word) in words(last).into_iter().enumerate() {
        // A word includes the spaces before it.
        let length = word.chars().count();
        if number > 0 && used + length > width && used > indentation {
            folded.push('\n');
            folded.push_str(&" ".repeat(indentation));
            let word = word.trim_start();
            folded.push_str(word);
            used = indentation + word.chars().count();
        } else {
            folded.push_str(word);
            used += length;
        }
    }
}

/// Returns the words of a line, each with the spaces before it; quoted text is one word.
fn words(line: &str) -> Vec<&str> {
    let (mut words, mut start) = (Vec::new(), 0);
    let (mut is_quoted, mut is_in_word) = (false, false);
    for (place, character) in line.char_indices() {
        if character == ' ' && is_in_word && !is_quoted {
            words.push(&line[start..place]);
            (start, is_in_word) = (place, false);
        }
        is_quoted ^= character == '`';
        is_in_word |= character != ' ';
    }
    words.push(&line[start..]);
    words
}

fn graph_text(nodes: &[String], edges: &[(usize, usize)], is_dot: bool) -> String {
    use std::fmt::Write as _;
    let mut text = String::from(if is_dot { "digraph plan {\n  rankdir=LR;\n" } else { "flowchart LR\n" });
    for (number, label) in nodes.iter().enumerate() {
        let label = label.replace('\\', "").replace('"', "'");
        let _ = if is_dot {
            writeln!(text, "  n{number} [label=\"{label}\"];")
        } else {
            writeln!(text, "  n{number}[\"{label}\"]")
        };
    }
    for (from, to) in edges {
        let _ = if is_dot {
            writeln!(text, "  n{from} -> n{to};")
        } else {
            writeln!(text, "  n{from} --> n{to}")
        };
    }
    if is_dot {
        text.push_str("}\n");
    }
    text
}

fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

/// Parses the path of a column, with or without braces and the leading dot, as kubectl accepts it.
fn column_path(text: &str) -> Result<JsonPath, String> {
    let bare = text.trim().trim_start_matches('{').trim_end_matches('}');
    let dot = if bare.starts_with(['.', '[', '$', '@']) { "" } else { "." };
    path(&format!("{dot}{bare}"))
}

/// Parses a path relative to the current object.
fn path(text: &str) -> Result<JsonPath, String> {
    let text = text.trim();
    JsonPath::parse(text.strip_prefix('@').unwrap_or(text)).map_err(|error| format!("{text:?}: {error}"))
}

/// A part of a template.
#[derive(Debug)]
enum Part {
    Text(String),
    Path(JsonPath),
    /// `{range .path}…{end}`
    Range(JsonPath, Vec<Part>),
}

/// Parses one of kubectl's JSONPath templates: text, `{.path}`, `{"text"}` and `{range .path}…{end}`.
fn template_parts(template: &str) -> Result<Vec<Part>, String> {
    let mut parts = Vec::new();
    // Parts outside of each open range.
    let mut open: Vec<(JsonPath, Vec<Part>)> = Vec::new();
    let mut rest = template;
    while let Some((text, after)) = rest.split_once('{') {
        parts.push(Part::Text(text.to_owned()));
        let (inside, next) =
            after.split_once('}').ok_or_else(|| format!("{template:?} has a {{ without }}"))?;
        rest = next;
        match inside.trim() {
            "end" => {
                let unopened = || format!("{template:?} has an {{end}} without {{range}}");
                let (range, outside) = open.pop().ok_or_else(unopened)?;
                let inner = std::mem::replace(&mut parts, outside);
                parts.push(Part::Range(range, inner));
            }
            inside if inside.starts_with("range ") => {
                open.push((path(&inside["range ".len()..])?, std::mem::take(&mut parts)));
            }
            inside if inside.starts_with(['"', '\'']) => parts.push(Part::Text(literal(inside)?)),
            inside => parts.push(Part::Path(path(inside)?)),
        }
    }
    if !open.is_empty() {
        return Err(format!("{template:?} has a {{range}} without {{end}}"));
    }
    parts.push(Part::Text(rest.to_owned()));
    Ok(parts)
}

/// Parses `"text"` or `'text'`, with escapes.
fn literal(quoted: &str) -> Result<String, String> {
    let json = match quoted.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')) {
        Some(text) => format!("\"{}\"", text.replace("\\'", "'").replace('"', "\\\"")),
        None => quoted.to_owned(),
    };
    serde_json::from_str(&json).map_err(|error| format!("{quoted}: {error}"))
}

fn fill(parts: &[Part], value: &Value, text: &mut String) {
    for part in parts {
        match part {
            Part::Text(own) => text.push_str(own),
            Part::Path(path) => {
                text.push_str(&path.find(value).into_iter().map(plain).collect::<Vec<_>>().join(" "));
            }
            Part::Range(path, inner) => path.find(value).into_iter().for_each(|item| fill(inner, item, text)),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use super::*;
    use serde_json::json;

    #[test]
    fn templates_are_those_of_kubectl() {
        let filled = |template: &str, value: &Value| {
            let mut text = String::new();
            fill(&template_parts(template)?, value, &mut text);
            Ok::<String, String>(text)
        };
        let value = json!({"items": [{"code": "A", "objects": [{"name": "x"}]}, {"code": "B", "objects": []}], "n": 2});
        for (template, expected) in [
            ("{.items[*].code}", "A B"),
            ("{.items[0].objects[*].name}", "x"),
            ("{range .items[*]}{.code}{\"\\n\"}{end}{.n}", "A\nB\n2"),
            ("none: {.nothing.here}", "none: "),
            ("{.items[1]['code']}", "B"),
            ("{.items[-1].code}{$.n}", "B2"),
            ("{.items[?(@.code==\"B\")].code}", "B"),
            ("{.items[?(@.code!='B')].objects[*]}", "{\"name\":\"x\"}"),
            ("{range .items[*]}{.code}{range .objects[*]}:{.name}{end}{'\\t\"'}{end}", "A:x\t\"B\t\""),
            ("{range .items[*].code}{@};{end}", "A;B;"),
        ] {
            assert_eq!(filled(template, &value).unwrap(), expected, "{template}");
        }
        for wrong in [
            "{.items",
            "{range .items[*]}{.code}",
            "{.code}{end}",
            "{.items[a}",
            "{.items[?(@.code=B)]}",
            "{'a}",
        ] {
            assert!(filled(wrong, &value).is_err(), "{wrong}");
        }
    }

    #[test]
    fn long_lines_are_folded_on_a_terminal() {
        for (line, expected) in [
            ("short", "short\n"),
            ("A   B   a finding of many more words", "A   B   a finding of\n        many more words\n"),
            ("CHECK   STATE   a finding of many words", "CHECK   STATE   a finding of many words\n"),
            ("           own room of one short column", "           own room of one short column\n"),
            ("one two three four five six seven", "one two three four five\n    six seven\n"),
            ("  one `two three four` five six", "  one `two three four`\n      five six\n"),
            (
                "  try:       kubectl get pods --all-namespaces",
                "  try:       kubectl get pods --all-namespaces\n",
            ),
            ("https://a.very.long.word/without/blanks", "https://a.very.long.word/without/blanks\n"),
        ] {
            assert_eq!(folded(line, 24), expected, "{line}");
        }
    }

    #[test]
    fn formats_are_read_or_explained() {
        assert_eq!("jsonpath={.a}".parse(), Ok(Output::JsonPath("{.a}".into())));
        let columns = vec![("A".to_owned(), ".a".to_owned()), ("B".to_owned(), ".b".to_owned())];
        assert_eq!("custom-columns=A:.a,B:.b".parse(), Ok(Output::Columns(columns)));
        assert_eq!("table".parse(), Ok(Output::Text));
        for wrong in [
            "",
            "jsonpath",
            "jsonpath=",
            "jsonpath={.a",
            "custom-columns=A",
            "custom-columns=A:.a[",
            "tables",
        ] {
            assert!(wrong.parse::<Output>().is_err(), "{wrong}");
        }
    }
}
