//! The live view on a terminal of what is stuck, deleted and due.

mod app;
mod draw;
mod events;
mod model;
mod source;
#[cfg(test)]
mod tests;
mod xray;

use std::io::Stdout;
use std::time::Duration;

use anyhow::Context as _;
use futures::FutureExt as _;
use gc_inspect::attached::Asks;
use gc_kube::ApiClient;
use ratatui::Terminal;
use ratatui::backend::TermionBackend;
use ratatui::termion::event::Key;
use ratatui::termion::input::TermRead as _;
use ratatui::termion::raw::{IntoRawMode as _, RawTerminal};
use ratatui::termion::screen::{AlternateScreen, IntoAlternateScreen as _};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, watch};

use app::{App, News, Order};
use model::WantedFeed;
use source::{Source, off_thread};

/// Maximum number of queued messages; their senders wait for room.
const QUEUED_NEWS: usize = 64;
/// Maximum number of queued keys.
const QUEUED_KEYS: usize = 64;
/// Minimum time between two frames: messages that come faster are drawn together.
const PICTURE_PERIOD: Duration = Duration::from_millis(33);

/// The terminal, which is restored when this is dropped.
type Screen = Terminal<TermionBackend<AlternateScreen<RawTerminal<Stdout>>>>;

/// Shows a cluster, or one namespace of it (all, if empty), until the user leaves, and then restores the terminal.
pub async fn show(client: ApiClient, asks: Asks, namespace: &str, patience: Duration) -> anyhow::Result<()> {
    let (send, news) = mpsc::channel(QUEUED_NEWS);
    let address = match &asks {
        Asks::Collector(page) => page.address(),
        Asks::Server(_) | Asks::Nobody => client.address(),
    };
    let app = App::new(address.trim_end_matches('/'), namespace);
    let source = Source::new(client, asks, patience, send);
    let wanted = watch::Sender::new(namespace.to_owned());
    let (follower, namespace) = (source.clone(), wanted.subscribe());
    off_thread(move || follower.follow_overview(namespace));
    let feed = watch::Sender::new(app.wanted_feed());
    tokio::spawn(source.clone().follow_feed(feed.subscribe()).boxed());
    run(app, screen()?, &source, news, (&wanted, &feed)).await
}

fn screen() -> anyhow::Result<Screen> {
    let raw = std::io::stdout().into_raw_mode().context("the terminal cannot be set to raw mode")?;
    let mut screen = Terminal::new(TermionBackend::new(raw.into_alternate_screen()?))?;
    screen.hide_cursor()?;
    Ok(screen)
}

/// Draws and handles keys until the user leaves.
async fn run(
    mut app: App,
    mut screen: Screen,
    source: &Source,
    mut news: mpsc::Receiver<News>,
    (wanted, feed): (&watch::Sender<String>, &watch::Sender<WantedFeed>),
) -> anyhow::Result<()> {
    let (mut keys, mut sizes) = (keys(), signal(SignalKind::window_change())?);
    loop {
        // A frame has the current size of the terminal.
        screen.draw(|frame| draw::draw(&app, frame))?;
        tokio::time::sleep(PICTURE_PERIOD).await;
        let mut orders = Vec::new();
        tokio::select! {
            key = keys.recv() => match key {
                Some(key) => orders.extend(app.key(key?)),
                None => return Ok(()),
            },
            Some(one) = news.recv() => orders.extend(app.learn(one)),
            _ = sizes.recv() => {}
        }
        // Changes that have arrived in the meantime are in the same frame.
        while let Ok(key) = keys.try_recv() {
            orders.extend(app.key(key?));
        }
        while let Ok(one) = news.try_recv() {
            orders.extend(app.learn(one));
        }
        feed.send_if_modified(|known| {
            let wanted = app.wanted_feed();
            std::mem::replace(known, wanted.clone()) != wanted
        });
        for order in orders {
            match order {
                Order::Quit => return Ok(()),
                Order::Overview(namespace) => drop(wanted.send_replace(namespace)),
                order => source.carry_out(order),
            }
        }
    }
}

/// Returns the keys that are pressed. They are read on a separate thread, which ends with the process, because reading them blocks.
fn keys() -> mpsc::Receiver<std::io::Result<Key>> {
    let (send, receive) = mpsc::channel(QUEUED_KEYS);
    std::thread::spawn(move || {
        for key in std::io::stdin().keys() {
            if send.blocking_send(key).is_err() {
                return;
            }
        }
    });
    receive
}
