//! A network path to a member that can be cut or slowed down.

use std::io::{Read, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Interval at which a cut path checks whether it is whole again.
const LOOK: Duration = Duration::from_millis(5);

/// A port that forwards to another one. Its threads end with the test.
pub(crate) struct Path {
    port: u16,
    condition: Arc<Condition>,
}

#[derive(Default)]
struct Condition {
    /// Packets are lost: connections are neither refused nor closed.
    is_cut: AtomicBool,
    /// Milliseconds that each piece of an answer takes longer.
    delay: AtomicU64,
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
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
    drop(from.shutdown(Shutdown::Read));
}
