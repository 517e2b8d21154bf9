//! A network path to a member that can be cut or slowed down, and that can break at a chosen moment.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// Interval at which a cut path checks whether it is restored.
const LOOK: Duration = Duration::from_millis(5);

/// A port that forwards to another one. Its threads end with the test.
pub(crate) struct Path {
    port: u16,
    condition: Arc<Condition>,
}

#[derive(Default)]
struct Condition {
    /// True while packets are lost: connections are neither refused nor closed.
    is_cut: AtomicBool,
    /// Delay of each chunk of an answer, in milliseconds.
    delay: AtomicU64,
    /// Number of answer chunks to lose together with their connections.
    lost_answers: AtomicUsize,
    /// True if requests are lost together with their connections.
    loses_requests: AtomicBool,
    /// Number of connections that were lost.
    breaks: AtomicUsize,
}

impl Path {
    pub(crate) fn to(target: u16) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let condition = Arc::new(Condition::default());
        let shared = Arc::clone(&condition);
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let condition = Arc::clone(&shared);
                std::thread::spawn(move || carry(&client, target, &condition));
            }
        });
        Self { port, condition }
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    pub(crate) fn cut(&self, is_cut: bool) {
        self.condition.is_cut.store(is_cut, Ordering::SeqCst);
    }

    pub(crate) fn slow_down(&self, by: Duration) {
        self.condition.delay.store(u64::try_from(by.as_millis()).unwrap(), Ordering::SeqCst);
    }

    /// Breaks the connection at the next answer, and loses the answer.
    pub(crate) fn lose_answer(&self) {
        self.condition.lost_answers.store(1, Ordering::SeqCst);
    }

    /// Breaks each connection at its next request, and loses the request.
    pub(crate) fn lose_requests(&self, are_lost: bool) {
        self.condition.loses_requests.store(are_lost, Ordering::SeqCst);
    }

    /// Returns the number of connections that were broken with a request or an answer.
    pub(crate) fn breaks(&self) -> usize {
        self.condition.breaks.load(Ordering::SeqCst)
    }
}

impl Condition {
    /// Reports whether a chunk is lost with its connection.
    fn breaks_with(&self, is_answer: bool) -> bool {
        let take = |left: usize| left.checked_sub(1);
        let is_lost = if is_answer {
            self.lost_answers.fetch_update(Ordering::SeqCst, Ordering::SeqCst, take).is_ok()
        } else {
            self.loses_requests.load(Ordering::SeqCst)
        };
        self.breaks.fetch_add(usize::from(is_lost), Ordering::SeqCst);
        is_lost
    }
}

fn carry(client: &TcpStream, target: u16, condition: &Arc<Condition>) {
    wait_until_whole(condition);
    let Ok(server) = TcpStream::connect(("127.0.0.1", target)) else {
        drop(client.shutdown(Shutdown::Both));
        return;
    };
    std::thread::scope(|scope| {
        scope.spawn(|| pump(client, &server, condition, false));
        scope.spawn(|| pump(&server, client, condition, true));
    });
}

fn wait_until_whole(condition: &Condition) {
    while condition.is_cut.load(Ordering::SeqCst) {
        std::thread::sleep(LOOK);
    }
}

fn pump(mut from: &TcpStream, mut to: &TcpStream, condition: &Condition, is_answer: bool) {
    let mut piece = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if is_answer {
            std::thread::sleep(Duration::from_millis(condition.delay.load(Ordering::SeqCst)));
        }
        wait_until_whole(condition);
        if condition.breaks_with(is_answer) {
            for side in [from, to] {
                drop(side.shutdown(Shutdown::Both));
            }
            return;
        }
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}
