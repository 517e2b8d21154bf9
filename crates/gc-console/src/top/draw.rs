//! Screens of `kubegc top`, with at least 80 columns.

use gc_explain::text::{count, thousands};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style, Stylize as _};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Cell, Clear, Paragraph, Row as TableRow, Table, TableState, Wrap};

use super::app::{App, Content, Input, Pane, View};
use super::model::{MinuteDeletions, Overview, Row};
use super::xray::Xray;

/// Width from which tables have all their columns.
const WIDE: u16 = 120;
/// Number of columns of the sparkline.
const SPARKS: usize = 20;
/// Bars from low to high.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// Columns of names, whose ends are kept.
const NAMES: [&str; 3] = ["OBJECT", "NAME", "NODE"];
/// Number of characters that end the name of a Deployment's pod: two hyphens, a hash of ten, and five.
const UNIQUE_END: usize = 17;

/// A column: its heading, its width, and whether only wide terminals show it.
type Column = (&'static str, Constraint, bool);

const fn columns(view: View) -> &'static [Column] {
    use Constraint::{Fill, Length};
    match view {
        View::Stuck => &[
            ("AGE", Length(7), false),
            ("NAMESPACE", Length(14), false),
            ("OBJECT", Fill(2), false),
            ("CAUSE", Length(30), false),
            ("MESSAGE", Fill(3), true),
        ],
        View::Feed => &[
            ("TIME", Length(8), false),
            ("CHANGE", Length(18), false),
            ("NAMESPACE", Length(14), true),
            ("OBJECT", Fill(2), false),
            ("REASON", Length(18), false),
            ("COLLECTOR", Length(30), true),
            ("MESSAGE", Fill(2), true),
        ],
        View::Due => &[
            ("IN", Length(8), false),
            ("NAMESPACE", Length(14), false),
            ("OBJECT", Fill(2), false),
            ("REASON", Length(18), false),
            ("COLLECTOR", Length(30), true),
            ("MESSAGE", Fill(2), true),
        ],
        View::Terminating => &[
            ("AGE", Length(7), false),
            ("NAMESPACE", Length(14), false),
            ("OBJECT", Fill(1), false),
            ("FINALIZERS", Fill(1), false),
        ],
        View::Nodes => &[
            ("NODE", Fill(1), false),
            ("FREED", Length(11), false),
            ("IMAGES", Length(7), false),
            ("CONTAINERS", Length(11), false),
            ("SANDBOXES", Length(10), true),
            ("LOGS", Length(7), true),
            ("DUE", Length(7), false),
        ],
        View::Objects => &[
            ("NAMESPACE", Length(14), false),
            ("NAME", Fill(3), false),
            ("READY", Length(6), false),
            ("STATUS", Fill(2), false),
            ("AGE", Length(6), false),
            ("OWNERS", Fill(2), true),
        ],
    }
}

/// The columns of trees of objects.
const XRAY: [Column; 5] = [
    ("NAMESPACE", Constraint::Length(14), false),
    ("OBJECT", Constraint::Fill(3), false),
    ("READY", Constraint::Length(6), false),
    ("STATUS", Constraint::Fill(2), false),
    ("AGE", Constraint::Length(6), false),
];

/// Returns the columns of the shown table, with the indexes of their cells.
fn shown_columns(app: &App, is_wide: bool) -> Vec<(usize, &'static Column)> {
    let is_xray = app.view == View::Objects && app.xray.is_some();
    let all: &'static [Column] = if is_xray { &XRAY } else { columns(app.view) };
    // If all objects are in one namespace, the room is used for names.
    let is_wanted = |column: &Column| !is_xray || app.namespace.is_empty() || column.0 != "NAMESPACE";
    let shown = all.iter().enumerate();
    shown.filter(|(_, column)| (is_wide || !column.2) && is_wanted(column)).collect()
}

/// Draws everything.
pub(crate) fn draw(app: &App, frame: &mut Frame<'_>) {
    let [head, tabs, body, foot] = Layout::vertical([
        Constraint::Length(2),
        Constraint::Length(1),
        Constraint::Fill(1),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    frame.render_widget(Paragraph::new(header(app)), head);
    frame.render_widget(Paragraph::new(tab_line(app)), tabs);
    table(app, frame, body);
    if let Some(pane) = &app.pane {
        draw_pane(pane, frame, body);
    }
    frame.render_widget(Paragraph::new(footer(app)), foot);
    without_control_characters(frame);
}

/// Removes control characters: names, reasons and messages come from others, and must not control the terminal.
fn without_control_characters(frame: &mut Frame<'_>) {
    for cell in &mut frame.buffer_mut().content {
        if cell.symbol().contains(char::is_control) {
            let text: String = cell.symbol().chars().filter(|c| !c.is_control()).collect();
            cell.set_symbol(if text.is_empty() { " " } else { &text });
        }
    }
}

fn header(app: &App) -> Vec<Line<'static>> {
    let overview = app.overview.as_deref();
    let user = overview.map(|overview| overview.user.name.clone()).filter(|name| !name.is_empty());
    let namespace = if app.namespace.is_empty() {
        "all namespaces".to_owned()
    } else {
        format!("namespace {}", app.namespace)
    };
    let mut first = vec![Span::from("kubegc top").bold(), Span::from(format!("  {}", app.address))];
    first.extend(user.map(|user| Span::from(format!("  {user}"))));
    first.push(Span::from(format!("  {namespace}")).cyan());
    let second = match (overview, &app.failure) {
        (_, Some(failure)) => vec![Span::from(failure.clone()).red()],
        (None, None) => vec![Span::from("Looking at the cluster…").dim()],
        (Some(overview), None) => standing(overview),
    };
    vec![Line::from(first), Line::from(second)]
}

/// Shows the mode of the collectors, and their deletions in the last hour.
fn standing(overview: &Overview) -> Vec<Span<'static>> {
    let mode = &overview.mode;
    let stopped: Vec<&str> = overview.stopped.iter().map(|one| &*one.resource).collect();
    let state = match &*mode.state {
        "Acting" if !stopped.is_empty() => {
            Span::from(format!("Acting, but the breaker has stopped {}", stopped.join(", "))).red()
        }
        "Acting" => Span::from("Acting").green(),
        "Unknown" => Span::from("Collectors not attached").dim(),
        other => {
            let reason = if mode.reason.is_empty() { String::new() } else { format!(": {}", mode.reason) };
            Span::from(format!("{other}{reason}")).yellow()
        }
    };
    let collected: u64 = overview.collected.iter().map(|collector| collector.total).sum();
    let mut spans = vec![state];
    if let Some(breaker) = &overview.node_breaker {
        let missing = count(breaker.missing, "machine");
        spans.push(Span::from(format!("  No node is deleted: {missing} missing")).red());
    }
    if mode.state != "Unknown" {
        let number = usize::try_from(collected).unwrap_or(usize::MAX);
        spans.push(Span::from(format!("  {} deleted in the last hour ", thousands(number))));
        spans.push(Span::from(sparkline(&overview.collected)).cyan());
    }
    if !overview.unseen.is_empty() {
        spans.push(Span::from(format!("  {} not seen", count(overview.unseen.len(), "thing"))).yellow());
    }
    spans
}

impl Overview {
    /// Formats each collector's deletions in the last hour, in descending order.
    pub(super) fn collected_lines(&self) -> Vec<String> {
        let mut busy: Vec<&MinuteDeletions> = self.collected.iter().collect();
        busy.sort_by_key(|one| (std::cmp::Reverse(one.total), &one.controller));
        let line = |one: &MinuteDeletions| {
            let number = thousands(usize::try_from(one.total).unwrap_or(usize::MAX));
            format!("{:<40} {number:>10}  {}", one.controller, sparkline(std::slice::from_ref(one)))
        };
        busy.into_iter().map(line).collect()
    }
}

/// Formats the deletions of the last hour, the most recent on the right.
fn sparkline(collected: &[MinuteDeletions]) -> String {
    let minutes = collected.iter().map(|collector| collector.minutes.len()).max().unwrap_or_default();
    let total = |minute: usize| -> u64 {
        collected.iter().filter_map(|collector| collector.minutes.get(minute)).sum()
    };
    let each: Vec<u64> = (0..minutes).map(total).collect();
    let sums: Vec<u64> = each.chunks(minutes.div_ceil(SPARKS).max(1)).map(|part| part.iter().sum()).collect();
    let most = sums.iter().copied().max().unwrap_or_default();
    let bar = |sum: &u64| match (sum * 7).checked_div(most) {
        None | Some(0) if *sum == 0 => ' ',
        height => BARS[usize::try_from(height.unwrap_or_default()).unwrap_or_default().min(7)],
    };
    sums.iter().map(bar).collect()
}

fn tab_line(app: &App) -> Line<'static> {
    let overview = app.overview.as_deref();
    let mut spans = Vec::new();
    for (index, view) in View::ALL.into_iter().enumerate() {
        let number = match view {
            View::Stuck => overview.map(|overview| overview.stuck.total),
            View::Due => overview.map(|overview| overview.due.total),
            View::Terminating => overview.map(|overview| overview.terminating.total),
            View::Nodes => overview.map(|overview| overview.nodes.total),
            View::Feed => None,
            View::Objects => match &app.xray {
                Some(xray) => xray.number(),
                None => app.objects.as_ref().map(Vec::len),
            },
        };
        let name = match view {
            View::Objects if app.xray.is_some() => format!("xray {}", app.kind),
            View::Objects if !app.kind.is_empty() => app.kind.clone(),
            _ => view.title().to_owned(),
        };
        let number = number.map(|number| format!(" {}", thousands(number))).unwrap_or_default();
        let text = format!(" {} {name}{number} ", index + 1);
        let chosen = if view == app.view { Modifier::REVERSED } else { Modifier::empty() };
        spans.push(Span::styled(text, Style::new().add_modifier(chosen)));
        spans.push(Span::from(" "));
    }
    Line::from(spans)
}

fn table(app: &App, frame: &mut Frame<'_>, area: Rect) {
    let rows = app.rows();
    if rows.is_empty() {
        frame.render_widget(Paragraph::new(vec![Line::default(), Line::from(empty(app)).dim()]), area);
        return;
    }
    let shown = shown_columns(app, area.width >= WIDE);
    let widths = Layout::horizontal(shown.iter().map(|(_, column)| column.1)).spacing(1).split(area);
    let line = |row: &Row| {
        let cells = shown.iter().zip(widths.iter()).map(|((index, column), place)| {
            let text = row.cells.get(*index).cloned().unwrap_or_default();
            let is_name = NAMES.contains(&column.0);
            Cell::from(if is_name { without_middle(&text, usize::from(place.width)) } else { text })
        });
        let colour = if row.is_bad { Style::new().fg(Color::Red) } else { Style::new() };
        TableRow::new(cells.collect::<Vec<_>>()).style(colour)
    };
    let selected = app.selected(rows.len());
    let table = Table::new(rows.iter().map(line), shown.iter().map(|(_, column)| column.1))
        .header(TableRow::new(shown.iter().map(|(_, column)| column.0)).bold())
        .row_highlight_style(Style::new().add_modifier(Modifier::REVERSED));
    let mut state = TableState::new().with_selected(Some(selected));
    frame.render_stateful_widget(table, area, &mut state);
}

/// Shortens a name that is longer than its column in the middle, because the end of a pod's name distinguishes it from its
/// siblings.
fn without_middle(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width || width == 0 {
        return name.to_owned();
    }
    let end = (width - 1).min(UNIQUE_END.max(width / 2));
    let head: String = name.chars().take(width - 1 - end).collect();
    let tail: String = name.chars().skip(length - end).collect();
    format!("{head}…{tail}")
}

/// Returns the message for a table without rows.
fn empty(app: &App) -> String {
    if !app.filter.is_empty() {
        return format!(" Nothing fits the filter {:?}.", app.filter);
    }
    let known = app.overview.is_some();
    let text = match app.view {
        View::Feed => match &app.feed_failure {
            Some(failure) => failure,
            None => "Nothing has happened yet.",
        },
        View::Objects if let Some(unseen) = app.xray.as_ref().and_then(Xray::unseen) => unseen,
        View::Objects
            if app.objects.is_some() || app.xray.as_ref().is_some_and(|xray| xray.number().is_some()) =>
        {
            "There are no such objects."
        }
        View::Stuck if known => "Nothing is stuck.",
        // The enabled collectors are unknown in that case.
        View::Due if app.overview.as_ref().is_some_and(|overview| overview.mode.state == "Unknown") => {
            "Nothing that lists show is due for the collectors that run by default; --collector asks those that run."
        }
        View::Due if known => "Nothing is due within 24 hours.",
        View::Terminating if known => "Nothing is being deleted.",
        View::Nodes if known => "No agent of a node (kubegc node) reports to this cluster.",
        _ => "…",
    };
    format!(" {text}")
}

fn draw_pane(pane: &Pane, frame: &mut Frame<'_>, area: Rect) {
    let what = match &pane.content {
        Content::Help => "Keys",
        Content::Why => "Why",
        Content::Tree => "Tree",
        Content::Metadata => "Metadata",
        Content::Change => "Change",
        Content::Collected => "Deleted in the last hour",
        Content::Plan(cascade) => match cascade {
            gc_inspect::plan::Cascade::Background => "Plan (background)",
            gc_inspect::plan::Cascade::Foreground => "Plan (foreground)",
            gc_inspect::plan::Cascade::Orphan => "Plan (orphan)",
        },
    };
    let title = match &pane.content {
        Content::Help | Content::Collected => format!(" {what} "),
        _ => format!(" {what}: {} ", pane.place.title()),
    };
    let block = Block::bordered().title(title);
    let inner = block.inner(area);
    frame.render_widget(Clear, area);
    frame.render_widget(block, area);
    if pane.lines.is_none() {
        frame.render_widget(Paragraph::new(" …").dim(), inner);
        return;
    }
    let shown = pane.shown().into_iter().skip(pane.scroll).take(usize::from(inner.height));
    let text = Paragraph::new(shown.map(Line::from).collect::<Vec<_>>());
    // Trees and tables keep their shape, and are moved sideways; sentences are wrapped.
    let is_prose = matches!(pane.content, Content::Why | Content::Metadata | Content::Change);
    let column = u16::try_from(pane.column).unwrap_or(u16::MAX);
    let text = if is_prose { text.wrap(Wrap { trim: false }) } else { text.scroll((0, column)) };
    frame.render_widget(text, inner);
}

/// Draws the typed text, the result of an order, or the keys.
fn footer(app: &App) -> Line<'static> {
    match &app.input {
        Input::Command(text) => return Line::from(format!(":{text}█")),
        Input::Filter(text) => return Line::from(format!("/{text}█")),
        Input::Confirm { typed, name: Some(name) } => {
            return Line::from(format!("Type {name} to delete: {typed}█")).yellow();
        }
        Input::Confirm { typed, name: None } => {
            return Line::from(format!("Delete? Type y and Enter: {typed}█")).yellow();
        }
        Input::Keys => {}
    }
    if !app.message.is_empty() {
        return Line::from(app.message.clone()).yellow();
    }
    let keys = match &app.pane {
        None if !app.filter.is_empty() => {
            return Line::from(format!("Filter {:?}; Esc clears it", app.filter)).dim();
        }
        None if app.view == View::Objects && app.xray.is_some() => {
            if let Some(unseen) = app.xray.as_ref().and_then(Xray::unseen) {
                return Line::from(unseen.to_owned()).yellow();
            }
            "Space open or close   x all   Enter why   y metadata   d plan   ? keys   q quit"
        }
        None => "? keys   : command   / filter   Enter why   t tree   d plan   q quit",
        Some(pane) if !pane.filter.is_empty() => {
            return Line::from(format!("Filter {:?}; Esc clears it", pane.filter)).dim();
        }
        Some(Pane { content: Content::Plan(_), .. }) => {
            "b f o background, foreground, orphan   x delete   ← → sideways   Esc close"
        }
        Some(Pane { content: Content::Help | Content::Collected, .. }) => "Esc close",
        Some(_) => "w why   t tree   y metadata   d plan   Esc close",
    };
    Line::from(keys).dim()
}
