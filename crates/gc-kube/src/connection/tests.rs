#![allow(clippy::unwrap_used, reason = "a test may panic")]

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Behaviour of a server.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Manner {
    NotThere,
    Silent,
    ClosesAfterIt,
    BreaksOffTheAnswer,
}

#[tokio::test]
async fn only_what_was_sent_and_not_answered_may_be_at_work() {
    for (manner, at_work) in [
        (Manner::NotThere, false),
        (Manner::Silent, true),
        (Manner::ClosesAfterIt, true),
        (Manner::BreaksOffTheAnswer, false),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = tokio::spawn(async move {
            if manner == Manner::NotThere {
                return;
            }
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                request.push(stream.read_u8().await.unwrap());
            }
            match manner {
                Manner::Silent => std::future::pending().await,
                Manner::BreaksOffTheAnswer => {
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{").await.unwrap();
                }
                Manner::NotThere | Manner::ClosesAfterIt => {}
            }
        });
        if manner == Manner::NotThere {
            server.await.unwrap();
        }
        let config = kube::Config::new(format!("http://{address}").parse().unwrap());
        let client = ApiClient::new(&config).unwrap().with_request_timeout(Duration::from_millis(500));
        let request = Request::builder().method("DELETE").uri("/api/v1/namespaces/n/pods");
        let error = client.call(request.body(Full::default()).unwrap()).await.unwrap_err();
        assert_eq!(error.may_be_at_work(), at_work, "{manner:?}: {error:?}");
    }
}

/// A changing request ends with the leadership; what only reads is answered by the server or by its timeout.
#[tokio::test]
async fn what_changes_something_is_given_up_when_this_process_ceases_to_lead() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let config = kube::Config::new(format!("http://{}", listener.local_addr().unwrap()).parse().unwrap());
    let (leads, led) = watch::channel(true);
    let client =
        ApiClient::new(&config).unwrap().with_request_timeout(Duration::from_secs(2)).while_leading(led);
    let send = |method: &str| {
        let request = Request::builder().method(method).uri("/api/v1/namespaces/n/pods/p");
        client.call(request.body(Full::default()).unwrap())
    };
    let (deletion, read) = (tokio::spawn(send("DELETE")), tokio::spawn(send("GET")));
    let _connections = [listener.accept().await.unwrap(), listener.accept().await.unwrap()];
    leads.send_replace(false);
    let error = deletion.await.unwrap().unwrap_err();
    assert!(matches!(error, RequestError::GivenUp) && error.may_be_at_work(), "{error:?}");
    assert!(matches!(read.await.unwrap(), Err(RequestError::Timeout(_))));
}
