//! State of `kubegc top`, and how keys and answers change it. Nothing here waits, reads a clock or touches a terminal.

use std::collections::VecDeque;

use gc_inspect::plan::Cascade;
use gc_inspect::subject::{ConfirmedPlan, Subject};
use ratatui::termion::event::Key;

use super::model::{Due, Line, ListedObject, Node, ObjectPlace, Overview, Row, Stuck, WantedFeed};
use super::xray::{Forest, Xray};

/// Maximum number of feed lines that are kept.
pub(super) const KEPT_LINES: usize = 500;
/// Maximum length of a command or filter.
const LONGEST_INPUT: usize = 256;
/// Number of columns by which a key moves a pane sideways.
const SIDE_COLUMNS: isize = 16;
/// Number of rows by which a page key moves.
const PAGE_ROWS: isize = 20;

/// One of the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum View {
    #[default]
    Stuck,
    Feed,
    Due,
    Terminating,
    Nodes,
    Objects,
}

impl View {
    pub(crate) const ALL: [Self; 6] =
        [Self::Stuck, Self::Feed, Self::Due, Self::Terminating, Self::Nodes, Self::Objects];

    pub(crate) const fn title(self) -> &'static str {
        match self {
            Self::Stuck => "Stuck",
            Self::Feed => "Feed",
            Self::Due => "Due",
            Self::Terminating => "Terminating",
            Self::Nodes => "Nodes",
            Self::Objects => "Objects",
        }
    }

    pub(crate) fn index(self) -> usize {
        Self::ALL.iter().position(|view| *view == self).unwrap_or_default()
    }
}

/// Current meaning of the keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Input {
    #[default]
    Keys,
    /// A command is being typed, after `:`.
    Command(String),
    /// A filter is being typed, after `/`.
    Filter(String),
    /// The deletion in the shown plan is being confirmed: by its object's name if `name` is given, otherwise by `y`.
    Confirm { typed: String, name: Option<String> },
}

/// Content of the pane over the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Help,
    Why,
    Tree,
    Metadata,
    Plan(Cascade),
    /// A change by a collector that is completely known.
    Change,
    /// Deletions of each collector.
    Collected,
}

/// A plan that was shown, and what its confirmation refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ShownPlan {
    pub(crate) lines: Vec<String>,
    pub(crate) confirmed: ConfirmedPlan,
    pub(super) needs_name: bool,
}

/// The pane over the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pane {
    pub(crate) content: Content,
    /// Object that the pane shows; empty for the help.
    pub(crate) place: ObjectPlace,
    /// Lines; `None` until the answer arrives.
    pub(crate) lines: Option<Vec<String>>,
    /// First line that is shown.
    pub(super) scroll: usize,
    /// First column that is shown.
    pub(crate) column: usize,
    /// Words that shown lines must contain.
    pub(crate) filter: String,
    /// Plan that can be confirmed.
    plan: Option<(ConfirmedPlan, bool)>,
}

/// A request to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Quit,
    /// Get the overview of this namespace immediately.
    Overview(String),
    /// List the objects of this kind in this namespace.
    Objects {
        kind: String,
        namespace: String,
    },
    /// List these objects with their dependents.
    Xray {
        kind: String,
        namespace: String,
    },
    Explain(Content, ObjectPlace),
    /// Pause the collectors, for this reason.
    Pause(String),
    /// Resume the collectors, or this resource that the circuit breaker has stopped.
    Resume(String),
    /// Delete an object. `is_named` is true if its name was typed.
    Delete {
        subject: Subject,
        cascade: Cascade,
        confirmed: ConfirmedPlan,
        is_named: bool,
    },
}

/// A message to the view.
#[derive(Clone, Debug)]
pub(super) enum News {
    Overview {
        namespace: String,
        answer: Result<Box<Overview>, String>,
    },
    Lines(Vec<Line>),
    /// All lines from now on belong to this feed.
    FeedOf(WantedFeed),
    /// State of the feed: followed, or the reason why not.
    Feed(Result<(), String>),
    Objects {
        kind: String,
        namespace: String,
        answer: Result<Vec<ListedObject>, String>,
    },
    Forest {
        kind: String,
        namespace: String,
        answer: Result<Forest, String>,
    },
    Explained(Content, ObjectPlace, Result<Vec<String>, String>),
    Planned(Cascade, ObjectPlace, Result<Box<ShownPlan>, String>),
    Deleted(Result<String, String>),
    /// Result of an order to the collectors.
    Obeyed(Result<String, String>),
}

impl Pane {
    /// Returns the lines that match the filter.
    pub(crate) fn shown(&self) -> Vec<&str> {
        let words: Vec<String> = self.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        let fits = |line: &&str| {
            let line = line.to_lowercase();
            words.iter().all(|word| line.contains(word))
        };
        self.lines.iter().flatten().map(String::as_str).filter(fits).collect()
    }
}

/// State of the view.
#[derive(Clone, Debug, Default)]
pub(super) struct App {
    /// Address of the server.
    pub(crate) address: String,
    pub(crate) view: View,
    /// Namespace; empty for all.
    pub(crate) namespace: String,
    pub(super) overview: Option<Box<Overview>>,
    /// Reason why there is no newer overview.
    pub(crate) failure: Option<String>,
    pub(crate) feed: VecDeque<Line>,
    /// Query for the feed's lines.
    feed_of: WantedFeed,
    /// Reason why the feed is not followed.
    pub(super) feed_failure: Option<String>,
    /// The kind whose objects are listed, and these objects.
    pub(crate) kind: String,
    pub(crate) objects: Option<Vec<ListedObject>>,
    /// Objects with their dependents, shown in place of the table.
    pub(super) xray: Option<Xray>,
    /// Selected row of each view.
    selected: [usize; View::ALL.len()],
    pub(crate) filter: String,
    pub(crate) input: Input,
    pub(super) pane: Option<Pane>,
    /// Last message about an order.
    pub(crate) message: String,
}

impl App {
    pub(crate) fn new(address: &str, namespace: &str) -> Self {
        Self { address: address.to_owned(), namespace: namespace.to_owned(), ..Self::default() }
    }

    /// Returns the feed for the namespace and the filter.
    pub(super) fn wanted_feed(&self) -> WantedFeed {
        WantedFeed { namespace: self.namespace.clone(), text: self.filter.trim().to_owned() }
    }

    /// Returns the rows of the table that match the filter.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let overview = self.overview.as_deref();
        let all: Vec<Row> = match self.view {
            View::Stuck => overview.map_or_else(Vec::new, |all| all.stuck.rows(Stuck::row)),
            View::Due => overview.map_or_else(Vec::new, |all| all.due.rows(Due::row)),
            View::Terminating => {
                overview.map_or_else(Vec::new, |all| all.terminating.rows(|item| item.row(&all.now)))
            }
            View::Nodes => overview.map_or_else(Vec::new, |all| all.nodes.rows(Node::row)),
            View::Feed => self.feed.iter().filter(|line| self.concerns(line)).map(Line::row).collect(),
            View::Objects => match &self.xray {
                // It filters whole trees.
                Some(xray) => return xray.rows(&self.filter),
                None => self.objects.iter().flatten().map(ListedObject::row).collect(),
            },
        };
        // The server has searched more than the shown part of a change.
        if self.view == View::Feed && self.feed_of == self.wanted_feed() {
            return all;
        }
        let words: Vec<String> = self.filter.to_lowercase().split_whitespace().map(str::to_owned).collect();
        all.into_iter()
            .filter(|row| {
                let text = row.cells.join(" ").to_lowercase();
                words.iter().all(|word| text.contains(word))
            })
            .collect()
    }

    fn concerns(&self, line: &Line) -> bool {
        match line {
            Line::Skipped(_) | Line::Unsearched(_) => true,
            Line::Change(change) => self.namespace.is_empty() || change.place.namespace == self.namespace,
        }
    }

    /// Returns the selected row out of `rows` rows.
    pub(crate) fn selected(&self, rows: usize) -> usize {
        self.selected[self.view.index()].min(rows.saturating_sub(1))
    }

    /// Returns the object of the selected row.
    fn selected_place(&self) -> Option<ObjectPlace> {
        let rows = self.rows();
        let selected = self.selected(rows.len());
        rows.into_iter().nth(selected)?.place
    }

    /// Takes a message, and returns the requests that follow from it.
    pub(super) fn learn(&mut self, news: News) -> Vec<Order> {
        match news {
            News::Overview { namespace, answer } if namespace == self.namespace => match answer {
                Ok(overview) => (self.overview, self.failure) = (Some(overview), None),
                Err(failure) => self.failure = Some(failure),
            },
            News::Objects { kind, namespace, answer }
                if (&kind, &namespace) == (&self.kind, &self.namespace) =>
            {
                match answer {
                    Ok(objects) => self.objects = Some(objects),
                    Err(failure) => (self.objects, self.message) = (Some(Vec::new()), failure),
                }
            }
            News::Forest { kind, namespace, answer }
                if (&kind, &namespace) == (&self.kind, &self.namespace)
                    && let Some(xray) = &mut self.xray =>
            {
                xray.learn(answer.unwrap_or_else(|failure| {
                    self.message.clone_from(&failure);
                    Forest { unseen: Some(failure), ..Forest::default() }
                }));
            }
            // The request was made before something else was requested.
            News::Overview { .. } | News::Objects { .. } | News::Forest { .. } => {}
            News::Lines(lines) => self.add_lines(lines),
            News::FeedOf(wanted) => {
                self.feed_of = wanted;
                self.feed.clear();
                self.selected[View::Feed.index()] = 0;
            }
            News::Feed(state) => self.feed_failure = state.err(),
            News::Explained(content, place, answer) => {
                let lines = answer.unwrap_or_else(|failure| vec![failure]);
                self.fill(&content, &place, lines, None);
            }
            News::Planned(cascade, place, answer) => match answer {
                Ok(plan) => {
                    let ShownPlan { lines, confirmed, needs_name } = *plan;
                    self.fill(&Content::Plan(cascade), &place, lines, Some((confirmed, needs_name)));
                }
                Err(failure) => self.fill(&Content::Plan(cascade), &place, vec![failure], None),
            },
            News::Deleted(done) => {
                self.message = done.unwrap_or_else(|failure| failure);
                return self.list_objects();
            }
            News::Obeyed(done) => {
                self.message = done.unwrap_or_else(|failure| failure);
                return vec![Order::Overview(self.namespace.clone())];
            }
        }
        Vec::new()
    }

    fn fill(
        &mut self,
        content: &Content,
        place: &ObjectPlace,
        lines: Vec<String>,
        plan: Option<(ConfirmedPlan, bool)>,
    ) {
        let awaits = |pane: &&mut Pane| (&pane.content, &pane.place) == (content, place);
        if let Some(pane) = self.pane.as_mut().filter(awaits) {
            (pane.lines, pane.plan) = (Some(lines), plan);
        }
    }

    fn add_lines(&mut self, lines: Vec<Line>) {
        let (fresh, on_top) = (lines.len(), self.selected[View::Feed.index()] == 0);
        for line in lines {
            self.feed.push_front(line);
        }
        self.feed.truncate(KEPT_LINES);
        if !on_top {
            // The line under the cursor stays there while a user reads it.
            let selected = &mut self.selected[View::Feed.index()];
            *selected = (*selected + fresh).min(KEPT_LINES - 1);
        }
    }

    /// Handles a key, and returns its requests.
    pub(crate) fn key(&mut self, key: Key) -> Vec<Order> {
        if key == Key::Ctrl('c') {
            return vec![Order::Quit];
        }
        match std::mem::take(&mut self.input) {
            Input::Keys if self.pane.is_some() => self.pane_key(key),
            Input::Keys => self.table_key(key),
            Input::Command(text) => match typed(text, key) {
                TypedText::More(text) => {
                    self.input = Input::Command(text);
                    Vec::new()
                }
                TypedText::Done(text) => self.command(&text),
                TypedText::Dropped => Vec::new(),
            },
            Input::Filter(text) => {
                let text = match typed(text, key) {
                    TypedText::More(text) => {
                        self.input = Input::Filter(text.clone());
                        text
                    }
                    TypedText::Done(text) => text,
                    TypedText::Dropped => String::new(),
                };
                match &mut self.pane {
                    Some(pane) => (pane.filter, pane.scroll) = (text, 0),
                    None => {
                        self.filter = text;
                        self.select(0);
                    }
                }
                Vec::new()
            }
            Input::Confirm { typed: text, name } => self.confirm_key(text, name, key),
        }
    }

    fn table_key(&mut self, key: Key) -> Vec<Order> {
        self.message.clear();
        if let Some(by) = movement(key) {
            self.select_by(by);
            return Vec::new();
        }
        if self.turns_branch(key) {
            return Vec::new();
        }
        match key {
            Key::Char('q') => return vec![Order::Quit],
            Key::Char(':') => self.input = Input::Command(String::new()),
            Key::Char('/') => self.input = Input::Filter(self.filter.clone()),
            Key::Char('?') => self.open(Content::Help, ObjectPlace::default()),
            Key::Char('0') => return self.enter_namespace(""),
            Key::Ctrl('r') => {
                let mut orders = vec![Order::Overview(self.namespace.clone())];
                orders.extend(self.list_objects());
                return orders;
            }
            Key::Char(digit @ '1'..='6') => {
                let index = usize::from(digit as u8 - b'1');
                return self.show(View::ALL[index]);
            }
            Key::Char('\t') => return self.show(View::ALL[(self.view.index() + 1) % View::ALL.len()]),
            Key::BackTab => {
                return self.show(View::ALL[(self.view.index() + View::ALL.len() - 1) % View::ALL.len()]);
            }
            Key::Esc => self.filter.clear(),
            Key::Char('\n') if self.show_evidence() => {}
            Key::Char('\n' | 'w') => return self.explain(&Content::Why),
            Key::Char('t') => return self.explain(&Content::Tree),
            Key::Char('y') => return self.explain(&Content::Metadata),
            Key::Char('d') => return self.explain(&Content::Plan(Cascade::Background)),
            _ => {}
        }
        Vec::new()
    }

    /// Opens or closes branches of the shown trees. Returns false for other keys.
    fn turns_branch(&mut self, key: Key) -> bool {
        let row = self.selected(self.rows().len());
        let Some(xray) = self.xray.as_mut().filter(|_| self.view == View::Objects) else { return false };
        let row = match key {
            Key::Char(' ') => {
                xray.turn(row, &self.filter);
                row
            }
            Key::Char('x') => {
                xray.toggle_all();
                0
            }
            Key::Right | Key::Char('l') => xray.open(row, &self.filter),
            Key::Left | Key::Char('h') => xray.close(row, &self.filter),
            _ => return false,
        };
        self.select(row);
        true
    }

    fn pane_key(&mut self, key: Key) -> Vec<Order> {
        self.message.clear();
        let Some(pane) = self.pane.as_mut() else { return Vec::new() };
        if let Some(by) = movement(key) {
            let last = pane.shown().len().saturating_sub(1);
            pane.scroll = pane.scroll.saturating_add_signed(by).min(last);
            return Vec::new();
        }
        if let Some(by) = sideways(key) {
            let widest = pane.shown().iter().map(|line| line.chars().count()).max().unwrap_or_default();
            pane.column = pane.column.saturating_add_signed(by).min(widest.saturating_sub(1));
            return Vec::new();
        }
        let (place, is_plan) = (pane.place.clone(), matches!(pane.content, Content::Plan(_)));
        let cascade = match key {
            Key::Char('b') => Some(Cascade::Background),
            Key::Char('f') => Some(Cascade::Foreground),
            Key::Char('o') => Some(Cascade::Orphan),
            _ => None,
        };
        match key {
            Key::Char(':') => self.input = Input::Command(String::new()),
            Key::Char('/') => self.input = Input::Filter(pane.filter.clone()),
            Key::Esc if !pane.filter.is_empty() => pane.filter.clear(),
            Key::Esc | Key::Char('q') => self.pane = None,
            _ if matches!(pane.content, Content::Help | Content::Collected) => {}
            Key::Char('x') if is_plan => match &pane.plan {
                Some((_, needs_name)) => {
                    let name = needs_name.then(|| place.name.clone());
                    self.input = Input::Confirm { typed: String::new(), name };
                }
                None => "There is no plan to confirm".clone_into(&mut self.message),
            },
            _ if is_plan && let Some(cascade) = cascade => {
                return self.explain_place(Content::Plan(cascade), place);
            }
            Key::Char('w') => return self.explain_place(Content::Why, place),
            Key::Char('t') => return self.explain_place(Content::Tree, place),
            Key::Char('y') => return self.explain_place(Content::Metadata, place),
            Key::Char('d') => return self.explain_place(Content::Plan(Cascade::Background), place),
            _ => {}
        }
        Vec::new()
    }

    fn confirm_key(&mut self, text: String, name: Option<String>, key: Key) -> Vec<Order> {
        let text = match typed(text, key) {
            TypedText::More(text) => {
                self.input = Input::Confirm { typed: text, name };
                return Vec::new();
            }
            TypedText::Done(text) => text,
            TypedText::Dropped => String::new(),
        };
        let is_agreed = text == name.as_deref().unwrap_or("y");
        let planned = self.pane.take_if(|pane| is_agreed && pane.plan.is_some());
        let Some(Pane { content: Content::Plan(cascade), place, plan: Some((confirmed, _)), .. }) = planned
        else {
            "Nothing was deleted".clone_into(&mut self.message);
            return Vec::new();
        };
        self.message = format!("Deleting {}", place.title());
        vec![Order::Delete { subject: place.subject(), cascade, confirmed, is_named: name.is_some() }]
    }

    /// Executes the command that was typed after `:`.
    fn command(&mut self, text: &str) -> Vec<Order> {
        self.message.clear();
        let mut words = text.split_whitespace();
        let (word, next, last) = (words.next().unwrap_or_default(), words.next(), words.next());
        if !word.is_empty() {
            self.pane = None;
        }
        match (word, next) {
            ("", _) => Vec::new(),
            ("pause", _) => {
                let reason = text.trim_start().strip_prefix("pause").unwrap_or_default().trim();
                vec![Order::Pause(reason.to_owned())]
            }
            ("resume", resource) => vec![Order::Resume(resource.unwrap_or_default().to_owned())],
            ("collected", _) => {
                self.open(Content::Collected, ObjectPlace::default());
                Vec::new()
            }
            ("q" | "quit" | "q!", _) => vec![Order::Quit],
            ("stuck", namespace) => self.show_in(View::Stuck, namespace),
            ("feed" | "journal", namespace) => self.show_in(View::Feed, namespace),
            ("due", namespace) => self.show_in(View::Due, namespace),
            ("terminating" | "term", namespace) => self.show_in(View::Terminating, namespace),
            ("freed", _) => self.show_in(View::Nodes, None),
            ("help" | "h", _) => {
                self.open(Content::Help, ObjectPlace::default());
                Vec::new()
            }
            ("ns" | "namespace", Some(namespace)) => self.enter_namespace(namespace),
            ("xray", None) => {
                "Which kind? For example :xray deploy".clone_into(&mut self.message);
                Vec::new()
            }
            ("xray", Some(kind)) => self.show_kind(kind, Some(Xray::default()), last),
            (kind, namespace) => self.show_kind(kind, None, namespace),
        }
    }

    fn show_kind(&mut self, kind: &str, xray: Option<Xray>, namespace: Option<&str>) -> Vec<Order> {
        kind.clone_into(&mut self.kind);
        (self.objects, self.xray) = (None, xray);
        self.selected[View::Objects.index()] = 0;
        self.show_in(View::Objects, namespace)
    }

    fn show_in(&mut self, view: View, namespace: Option<&str>) -> Vec<Order> {
        let mut orders = namespace.map(|namespace| self.enter_namespace(namespace)).unwrap_or_default();
        orders.retain(|order| !matches!(order, Order::Objects { .. } | Order::Xray { .. }));
        orders.extend(self.show(view));
        orders
    }

    fn show(&mut self, view: View) -> Vec<Order> {
        self.view = view;
        self.list_objects()
    }

    /// Lists the objects again, if they are shown.
    fn list_objects(&mut self) -> Vec<Order> {
        if self.view != View::Objects {
            return Vec::new();
        }
        if self.kind.is_empty() {
            "pods".clone_into(&mut self.kind);
        }
        let (kind, namespace) = (self.kind.clone(), self.namespace.clone());
        let is_xray = self.xray.is_some();
        vec![if is_xray { Order::Xray { kind, namespace } } else { Order::Objects { kind, namespace } }]
    }

    fn enter_namespace(&mut self, namespace: &str) -> Vec<Order> {
        let namespace = if matches!(namespace, "all" | "-") { "" } else { namespace };
        if namespace != self.namespace {
            namespace.clone_into(&mut self.namespace);
            (self.overview, self.objects, self.selected) = (None, None, Default::default());
            self.xray = self.xray.take().map(|_| Xray::default());
        }
        let mut orders = vec![Order::Overview(self.namespace.clone())];
        orders.extend(self.list_objects());
        orders
    }

    fn explain(&mut self, content: &Content) -> Vec<Order> {
        match self.selected_place() {
            Some(place) => self.explain_place(content.clone(), place),
            None => {
                "There is no object on this line".clone_into(&mut self.message);
                Vec::new()
            }
        }
    }

    fn explain_place(&mut self, content: Content, place: ObjectPlace) -> Vec<Order> {
        self.open(content.clone(), place.clone());
        vec![Order::Explain(content, place)]
    }

    /// Shows the details of the selected change, if a change is selected.
    fn show_evidence(&mut self) -> bool {
        let rows = self.rows();
        let selected = self.selected(rows.len());
        let Some(Row { evidence, place: Some(place), .. }) = rows.into_iter().nth(selected) else {
            return false;
        };
        if evidence.is_empty() {
            return false;
        }
        self.open(Content::Change, place);
        if let Some(pane) = &mut self.pane {
            pane.lines = Some(evidence);
        }
        true
    }

    fn open(&mut self, content: Content, place: ObjectPlace) {
        let lines = match content {
            Content::Help => Some(HELP.lines().map(str::to_owned).collect()),
            Content::Collected => self.overview.as_deref().map(Overview::collected_lines),
            _ => None,
        };
        let filter = String::new();
        self.pane = Some(Pane { content, place, lines, scroll: 0, column: 0, filter, plan: None });
    }

    fn select(&mut self, row: usize) {
        self.selected[self.view.index()] = row;
    }

    fn select_by(&mut self, by: isize) {
        let rows = self.rows().len();
        self.select(self.selected(rows).saturating_add_signed(by).min(rows.saturating_sub(1)));
    }
}

/// The keys, as the help shows them.
const HELP: &str = " 1-6, Tab       stuck, feed, due, terminating, nodes, objects
 j k g G        move; Ctrl-F and Ctrl-B by a page
 Enter or w     why the object is, or is not, deleted; Enter on a change of
                the feed: its reason and evidence
 t              the tree of its dependents
 y              its metadata
 d              the plan of its deletion; then b, f or o for background,
                foreground or orphan, and x to delete
 /              filter the table or the open pane; Esc clears the filter
 Left, Right    move the open pane sideways
 :KIND [NS]     the objects of a kind, such as :deploy or :pods shop
 :xray KIND [NS] the same with what they own, as trees; Space opens or closes
                one, x all of them, Right and Left step into and out of them
 :freed         what was freed on nodes
 :collected     what each collector deleted in the last hour
 :pause [WHY]   pause the collectors; :resume [RESOURCE] resumes them, or what
                the circuit breaker has stopped
 :ns NAME       one namespace; 0 shows all
 Ctrl-R         refresh
 q, Ctrl-C      leave";

enum TypedText {
    More(String),
    Done(String),
    Dropped,
}

/// Returns a text after one more key.
fn typed(mut text: String, key: Key) -> TypedText {
    match key {
        Key::Esc => return TypedText::Dropped,
        Key::Char('\n') => return TypedText::Done(text),
        Key::Backspace => drop(text.pop()),
        Key::Ctrl('u') => text.clear(),
        Key::Char(c) if !c.is_control() && text.len() < LONGEST_INPUT => text.push(c),
        _ => {}
    }
    TypedText::More(text)
}

/// Returns by how many columns a key moves a pane.
fn sideways(key: Key) -> Option<isize> {
    match key {
        Key::Right | Key::Char('l') => Some(SIDE_COLUMNS),
        Key::Left | Key::Char('h') => Some(-SIDE_COLUMNS),
        _ => None,
    }
}

/// Returns by how many lines a key moves.
fn movement(key: Key) -> Option<isize> {
    match key {
        Key::Down | Key::Char('j') => Some(1),
        Key::Up | Key::Char('k') => Some(-1),
        Key::PageDown | Key::Ctrl('f') => Some(PAGE_ROWS),
        Key::PageUp | Key::Ctrl('b') => Some(-PAGE_ROWS),
        Key::Home | Key::Char('g') => Some(isize::MIN),
        Key::End | Key::Char('G') => Some(isize::MAX),
        _ => None,
    }
}
