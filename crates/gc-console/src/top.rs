//! The view on a terminal: what is stuck, deleted and due, live on a terminal.

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

/// News that wait to be drawn; those who bring more wait.
const QUEUED_NEWS: usize = 64;
/// Keys that wait to be handled.
const QUEUED_KEYS: usize = 64;
/// Shortest time between two pictures: news that come faster are drawn together.
const PICTURE_PERIOD: Duration = Duration::from_millis(33);

/// The terminal, which is as it was before when this is dropped.
type Screen = Terminal<TermionBackend<AlternateScreen<RawTerminal<Stdout>>>>;

/// Shows a cluster, or one namespace of it (an empty one: all), until the user leaves. The terminal is as it was before afterwards.
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

/// Draws and obeys until the user leaves.
async fn run(
    mut app: App,
    mut screen: Screen,
    source: &Source,
    mut news: mpsc::Receiver<News>,
    (wanted, feed): (&watch::Sender<String>, &watch::Sender<WantedFeed>),
) -> anyhow::Result<()> {
    let (mut keys, mut sizes) = (keys(), signal(SignalKind::window_change())?);
    loop {
        // A picture has the size that the terminal has by now.
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
        // Changes that arrived meanwhile are in the same picture.
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

/// The keys that are pressed, read on a thread of its own, since reading them blocks. It ends with the process.
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
