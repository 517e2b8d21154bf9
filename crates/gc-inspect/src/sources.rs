//! Locations of a journal: the named file or collector, the server's own journal, that of a collector on this machine or of the
//! leader, or a file that one has left.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use gc_kube::{ApiClient, push_segment};
use gc_process::access::Access;
use gc_process::journal::{self, Found, FoundEntries, Query, Selection, text};
use gc_process::lease::LeaseFlags;
use gc_process::local::{DEFAULT_PAGES, default_journal, recorded_pages};
use gc_process::{UsageError, preflight};
use gc_types::Uid;
use http::{Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::Value;

use super::collector::{CollectorFlags, GUESS_PATIENCE, LeaderPages, OutOfReach};
use crate::target::NamedObject;

/// Interval at which a followed file is read.
const FOLLOW_PERIOD: Duration = Duration::from_millis(250);
/// Pause before a followed collector is requested again.
const RETRY_PAUSE: Duration = Duration::from_secs(1);
/// Maximum number of refused requests to read; the newest are read.
const REFUSALS_READ: usize = 1_000;
/// Maximum length of a line in a followed journal.
const LONGEST_LINE: usize = 16 << 20;

/// Flags that select the journal.
#[derive(Clone, Debug, Default, Args)]
pub struct JournalFlags {
    /// Read the journal from this file and its rotated files FILE.1, FILE.2, … [default: ask the server, a collector on
    /// this machine or the one that holds the Lease, then read the file that `kubegc run` writes by default]
    #[arg(long, value_name = "FILE", env = "KUBEGC_JOURNAL")]
    pub journal: Option<PathBuf>,
    /// The collector whose journal is read.
    #[command(flatten)]
    pub collector: CollectorFlags,
}

/// A journal.
pub struct Source {
    place: JournalLocation,
    /// Restricts entries to this server, because others may share the journal.
    server: Option<String>,
}

enum JournalLocation {
    File(PathBuf),
    Asked(ApiClient),
}

impl std::fmt::Display for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.place {
            JournalLocation::File(file) => write!(f, "{}", file.display()),
            JournalLocation::Asked(client) => f.write_str(client.address()),
        }
    }
}

impl JournalFlags {
    /// Reports whether a journal was named.
    #[must_use]
    pub fn is_named(&self) -> bool {
        self.journal.is_some() || self.collector.is_named()
    }

    /// Returns the named journal, if there is one.
    async fn named(&self, access: &Access) -> Result<Option<Source>> {
        if let Some(file) = &self.journal {
            return Ok(Some(Source { place: JournalLocation::File(file.clone()), server: None }));
        }
        let client = self.collector.connect(access, &LeaseFlags::default_name()).await?;
        Ok(client.map(|client| Source { place: JournalLocation::Asked(client), server: None }))
    }

    /// Returns the journal of the collectors that work on a server; `None` if none is found. An error explains why the journal of
    /// the leading collector cannot be read.
    pub async fn of_server(&self, access: &Access, client: &ApiClient) -> Result<Option<Source>> {
        if let Some(named) = self.named(access).await? {
            return Ok(Some(named));
        }
        let own = Source::of(client);
        let refused = match own.is_there().await {
            Ok(true) => return Ok(Some(own)),
            Ok(false) => None,
            // A server without this path also refuses it to users with few permissions.
            Err(error) => Some(error),
        };
        let server = Some(client.address().to_owned());
        let guess = Source::on_this_machine(server.clone()).await;
        if let Some((guess, true)) = guess {
            return Ok(Some(guess));
        }
        let of_leader = Source::of_leader(access, client).await;
        let file = default_journal().filter(|file| file.exists());
        let file = file.map(|file| Source { place: JournalLocation::File(file), server });
        let is_about_it = match &file {
            Some(file) => file.has_entries().await,
            None => false,
        };
        let (of_leader, refused) = match (of_leader, refused) {
            (Ok(Some(source)), _) => return Ok(Some(source)),
            // A file with entries about this server takes precedence over the error.
            _ if is_about_it => return Ok(file),
            (Ok(None), refused) => (None, refused),
            (Err(why), refused) => (Some(why), refused),
        };
        match (of_leader, refused) {
            (None, None) => Ok(file.or(guess.map(|(guess, _)| guess))),
            (None, Some(refused)) => Err(refused),
            (Some(why), None) => Err(why.into()),
            (Some(why), Some(refused)) => Err(anyhow::anyhow!("{refused:#}; {why}")),
        }
    }

    /// Finds the journal of the current server, which need not be running.
    pub async fn find(&self, access: &Access) -> Result<Source> {
        if let Some(named) = self.named(access).await? {
            return Ok(named);
        }
        let client = match access.connect().await {
            Ok(client) => client,
            Err(error) => {
                let Some(file) = left_behind() else { return Err(error) };
                gc_process::screen::complain!("warning: {error:#}; reading {}", file.display());
                return Ok(Source { place: JournalLocation::File(file), server: None });
            }
        };
        let found = self.of_server(access, &client).await?;
        found.ok_or_else(|| {
            UsageError::new(format!(
                "no journal found: {} keeps none, no collector answers at {DEFAULT_PAGES}, and none holds the Lease; name its file with \
                 --journal FILE or its address with --collector ADDRESS:PORT",
                client.address()
            ))
            .into()
        })
    }
}

impl JournalFlags {
    /// Reads the named collector's entries about an object, if its page is at that address. `kubegc run` serves its journal at
    /// another one.
    pub async fn of_page(&self, access: &Access, named: &NamedObject) -> Option<(Found, Source)> {
        let page = self.collector.connect_to_page(access, &LeaseFlags::default_name()).await.ok()??;
        let mut path = "/kubegc/v1/object?resource=".to_owned();
        push_segment(&mut path, &named.resource.name.to_string());
        for (parameter, value) in [("&namespace=", &named.namespace), ("&name=", &named.name)] {
            path.push_str(parameter);
            push_segment(&mut path, value);
        }
        let answer = page.call(preflight::request(Method::GET, &path, None)).await.ok()?;
        // A response that is not such a page reveals nothing about objects.
        let document: Value = serde_json::from_slice(&answer.body).ok()?;
        let entries = match answer.head.status {
            StatusCode::NOT_FOUND => VecDeque::new(),
            status if status.is_success() => serde_json::from_value(document["journal"].clone()).ok()?,
            _ => return None,
        };
        let oldest_first = entries.into_iter().rev().collect();
        Some((Found::of(oldest_first), Source { place: JournalLocation::Asked(page), server: None }))
    }
}

/// Returns the journal file that a server or a collector on this machine has left.
fn left_behind() -> Option<PathBuf> {
    let of_server =
        gc_process::kubeconfig::default_data_dir().ok().map(|folder| folder.join(journal::SERVER_JOURNAL));
    let newest = |file: &PathBuf| file.metadata().and_then(|metadata| metadata.modified()).ok();
    of_server.into_iter().chain(default_journal()).filter(|file| file.exists()).max_by_key(newest)
}

impl Source {
    /// Returns the journal of a server, if it keeps one.
    pub fn of(client: &ApiClient) -> Self {
        Self { place: JournalLocation::Asked(client.clone()), server: None }
    }

    /// Returns the journal of a collector on this machine, and whether it has entries about this server: it may work on another
    /// one.
    async fn on_this_machine(server: Option<String>) -> Option<(Self, bool)> {
        let mut found = None;
        for address in recorded_pages().into_iter().chain([DEFAULT_PAGES.to_owned()]) {
            let Ok(client) = ApiClient::plain(&address) else { continue };
            let guess = Self { place: JournalLocation::Asked(client), server: server.clone() };
            let newest = Selection { tail: 1, ..Selection::default() };
            // Another program at that address keeps no journal.
            let Ok(Ok(answer)) = tokio::time::timeout(GUESS_PATIENCE, guess.search(&newest)).await else {
                continue;
            };
            if !answer.entries.is_empty() {
                return Some((guess, true));
            }
            found.get_or_insert((guess, false));
        }
        found
    }

    /// Reports whether it can be read and has entries about its server.
    async fn has_entries(&self) -> bool {
        let newest = Selection { tail: 1, ..Selection::default() };
        self.search(&newest).await.is_ok_and(|found| !found.entries.is_empty())
    }

    /// Returns the journal of the leading collector, if there is one.
    async fn of_leader(access: &Access, client: &ApiClient) -> Result<Option<Self>, OutOfReach> {
        let Some(pages) = LeaderPages::find(client, access, &LeaseFlags::default_name()).await? else {
            return Ok(None);
        };
        let source = Self::of(&pages.client);
        match tokio::time::timeout(GUESS_PATIENCE, source.is_there()).await {
            Ok(Ok(true)) => Ok(Some(source)),
            Ok(Ok(false)) => Ok(None),
            Ok(Err(error)) if error.is::<gc_kube::connection::RequestError>() => {
                Err(pages.unreachable(format!("{error:#}")))
            }
            Ok(Err(error)) => Err(OutOfReach::Refused(format!("{error:#}"))),
            Err(_) => Err(pages.unreachable(format!("no answer within {} s", GUESS_PATIENCE.as_secs()))),
        }
    }

    /// Creates the source for a file.
    #[must_use]
    pub fn of_file(file: &str) -> Self {
        Self { place: JournalLocation::File(file.into()), server: None }
    }

    /// Reports whether there is a journal. A permission problem is an error.
    async fn is_there(&self) -> Result<bool> {
        let JournalLocation::Asked(client) = &self.place else { return Ok(true) };
        Ok(ask(client, "tail=1&barriers=true").await?.is_some())
    }

    /// Restricts a selection to this journal's server.
    fn narrowed(&self, selection: &Selection) -> Selection {
        let mut selection = selection.clone();
        if self.server.is_some() {
            selection.query.server.clone_from(&self.server);
        }
        selection
    }

    /// Returns the selected entries.
    pub async fn search(&self, selection: &Selection) -> Result<Found> {
        let selection = self.narrowed(selection);
        match &self.place {
            JournalLocation::File(file) => journal::search(file, &selection),
            JournalLocation::Asked(client) => {
                let answer = ask(client, &selection.query_string()).await?;
                let mut found =
                    answer.map(FoundEntries::read).with_context(|| format!("{self} keeps no journal"))?;
                // One response is bounded.
                let wanted = if selection.tail == 0 { usize::MAX } else { selection.tail };
                while found.left_out > 0 && found.entries.len() < wanted {
                    let Some(oldest) = found.entries.front().and_then(|entry| entry["number"].as_u64())
                    else {
                        break;
                    };
                    let mut older = selection.clone();
                    older.query.before = Some(oldest);
                    older.tail = if selection.tail == 0 { 0 } else { wanted - found.entries.len() };
                    let Some(answer) = ask(client, &older.query_string()).await? else { break };
                    let answer = FoundEntries::read(answer);
                    if answer.entries.is_empty() {
                        break;
                    }
                    found.extend_back(answer);
                }
                Ok(found)
            }
        }
    }

    /// Returns the server's errors for refused collector requests, by the UID of the object, the newest last; empty if the journal
    /// cannot be read.
    pub async fn refusals(&self) -> Vec<(Uid, String)> {
        let mut refused = Vec::new();
        for outcome in [journal::REFUSED, journal::PROTECTED] {
            let query = Query { outcome: Some(outcome.to_owned()), ..Query::default() };
            let selection = Selection { query, tail: REFUSALS_READ, ..Selection::default() };
            let found = self.search(&selection).await.unwrap_or_default();
            let said = |entry: &Value| (Uid::new(text(entry, "uid")), text(entry, "failure").to_owned());
            refused.extend(found.entries.iter().map(said).filter(|(_, message)| !message.is_empty()));
        }
        refused
    }

    /// Passes on the entries after this number, and new ones as they are written, until `show` fails.
    pub async fn follow(
        &self,
        selection: &Selection,
        last: u64,
        mut show: impl FnMut(&Value) -> Result<()>,
    ) -> Result<()> {
        let selection = self.narrowed(selection);
        let show = |entry: &Value| if selection.query.matches(entry) { show(entry) } else { Ok(()) };
        match &self.place {
            JournalLocation::File(file) => follow_file(file, last, show).await,
            JournalLocation::Asked(client) => follow_pages(client, &selection, last, show).await,
        }
    }
}

/// Returns the response to a query; `None` if there is no journal.
async fn ask(client: &ApiClient, query: &str) -> Result<Option<Value>> {
    let path = format!("{}?{query}", journal::PATH);
    let answer = client.call(preflight::request(Method::GET, &path, None)).await?;
    match answer.head.status {
        StatusCode::NOT_FOUND => Ok(None),
        status if status.is_success() => {
            // Another kind of server may answer everything with a page of its own.
            Ok(serde_json::from_slice::<Value>(&answer.body)
                .ok()
                .filter(|document| document["items"].is_array()))
        }
        status => bail!(
            "the journal of {} cannot be read: {}: {}",
            client.address(),
            status.as_u16(),
            preflight::message(&answer)
        ),
    }
}

fn number(entry: &Value) -> Option<u64> {
    entry["number"].as_u64()
}

/// Follows a collector across the ends of responses.
async fn follow_pages(
    client: &ApiClient,
    selection: &Selection,
    mut last: u64,
    mut show: impl FnMut(&Value) -> Result<()>,
) -> Result<()> {
    let mut has_answered = false;
    loop {
        let path = format!("{}?follow=true&after={last}&{}", journal::PATH, selection.query_string());
        let response = match client.open(preflight::request(Method::GET, &path, None)).await {
            Ok(response) if response.status().is_success() => response,
            Ok(response) => {
                bail!("the journal of {} cannot be followed: {}", client.address(), response.status())
            }
            // A collector that restarts will be back in a moment.
            Err(_) if has_answered => {
                tokio::time::sleep(RETRY_PAUSE).await;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        has_answered = true;
        let mut body = response.into_body();
        let mut buffer: Vec<u8> = Vec::new();
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(chunk) = frame.into_data() else { continue };
            buffer.extend_from_slice(&chunk);
            while let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                let Ok(entry) = serde_json::from_slice::<Value>(&line) else { continue };
                last = number(&entry).unwrap_or(last);
                if entry["verb"] == "skipped" {
                    gc_process::screen::complain!(
                        "warning: {} entries were skipped: they came too fast",
                        entry["count"]
                    );
                    continue;
                }
                show(&entry)?;
            }
            if buffer.len() > LONGEST_LINE {
                bail!("a line of the journal is too long");
            }
        }
        tokio::time::sleep(RETRY_PAUSE).await;
    }
}

/// Reads to the end of a line, or up to the maximum length.
fn read_on(reader: &mut BufReader<File>, line: &mut Vec<u8>) -> std::io::Result<usize> {
    let room = journal::LONGEST_LINE_BYTES.saturating_sub(line.len());
    reader.by_ref().take(room as u64).read_until(b'\n', line)
}

/// Follows a file across rotations.
async fn follow_file(path: &Path, last: u64, mut show: impl FnMut(&Value) -> Result<()>) -> Result<()> {
    let open = || File::open(path).with_context(|| format!("cannot read {}", path.display()));
    let mut reader = BufReader::new(open()?);
    let mut line = Vec::new();
    loop {
        // The next read completes a line that is still being written.
        while read_on(&mut reader, &mut line)? > 0 && line.ends_with(b"\n") {
            if let Ok(entry) = serde_json::from_slice::<Value>(&line)
                && number(&entry).is_some_and(|number| number > last)
            {
                show(&entry)?;
            }
            line.clear();
        }
        if line.len() >= journal::LONGEST_LINE_BYTES {
            bail!("{} has a line of more than {} bytes", path.display(), journal::LONGEST_LINE_BYTES);
        }
        tokio::time::sleep(FOLLOW_PERIOD).await;
        let same = path.metadata().is_ok_and(|now| {
            let open = reader.get_ref().metadata();
            open.is_ok_and(|open| gc_host::file_identity(&open) == gc_host::file_identity(&now))
        });
        // Entries that were written to the old file before its rotation are read first.
        if !same && reader.fill_buf()?.is_empty() && path.exists() {
            reader = BufReader::new(open()?);
            line.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]

    use std::io::Write as _;

    use super::*;

    #[tokio::test]
    async fn what_is_followed_has_lines_within_a_bound() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        writeln!(file, "{{\"number\": 1}}\nno JSON \u{fffd}\n{{\"number\": 2}}").unwrap();
        let long = vec![b'x'; journal::LONGEST_LINE_BYTES + 1];
        file.write_all(&long).unwrap();
        let mut shown = Vec::new();
        let followed = follow_file(file.path(), 1, |entry| {
            shown.push(entry.clone());
            Ok(())
        });
        let error = tokio::time::timeout(Duration::from_secs(10), followed).await.unwrap().unwrap_err();
        let wanted = format!("{} has a line of more than 4194304 bytes", file.path().display());
        assert_eq!((shown.len(), error.to_string()), (1, wanted));
    }
}
