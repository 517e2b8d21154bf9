//! A small CSI driver: volumes are directories on disk, the service is real gRPC over HTTP/2 on a real Unix
//! socket. It can fail, hang, send garbage and give false answers on request. Its messages are declared here again,
//! so that a wrong field number on either side shows.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::{BufMut, Bytes, BytesMut};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use tokio::net::UnixListener;

#[derive(Clone, PartialEq, Message)]
struct PluginInfo {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    vendor_version: String,
    #[prost(map = "string, string", tag = "3")]
    manifest: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct Typed {
    #[prost(int32, tag = "1")]
    r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct Wrapped {
    #[prost(message, optional, tag = "1")]
    inner: Option<Typed>,
}

#[derive(Clone, PartialEq, Message)]
struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    capabilities: Vec<Wrapped>,
}

#[derive(Clone, PartialEq, Message)]
struct Flag {
    #[prost(bool, tag = "1")]
    value: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Probe {
    #[prost(message, optional, tag = "1")]
    ready: Option<Flag>,
}

#[derive(Clone, PartialEq, Message)]
struct DeleteVolume {
    #[prost(string, tag = "1")]
    volume_id: String,
    #[prost(map = "string, string", tag = "2")]
    secrets: HashMap<String, String>,
}

/// How the driver misbehaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Not at all.
    Good,
    /// Answers deletions with this gRPC code and text.
    Fails(u32, String),
    /// Accepts every call and never answers.
    Hangs,
    /// Sends bytes that are not a message.
    Garbage,
    /// Reports that it is not ready.
    NotReady,
    /// Calls itself by this name.
    Named(String),
    /// Has no controller service.
    NoController,
    /// Has a controller service without deletion.
    NoDeletion,
}

/// The state of the driver, and the calls that it received.
pub struct State {
    pub mood: Mood,
    /// Volume and secrets of each requested deletion, in order.
    pub deletions: Vec<(String, HashMap<String, String>)>,
}

enum Answer {
    Message(Vec<u8>),
    Failure(u32, String),
    Silence,
}

/// A driver that serves until it is dropped.
pub struct Driver {
    pub name: String,
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
    runtime: Option<tokio::runtime::Runtime>,
}

impl Driver {
    /// Starts one of this name.
    pub fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("volumes")).unwrap();
        let state = Arc::new(Mutex::new(State { mood: Mood::Good, deletions: Vec::new() }));
        let mut driver = Self { name: name.to_owned(), folder, state, runtime: None };
        driver.listen();
        driver
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn be(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// `driver=unix:///path`
    pub fn endpoint(&self) -> String {
        format!("{}=unix://{}", self.name, self.socket().display())
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// Creates a volume with a file in it.
    pub fn make_volume(&self, handle: &str) {
        std::fs::create_dir(self.volume(handle)).unwrap();
        std::fs::write(self.volume(handle).join("data"), handle).unwrap();
    }

    pub fn has_volume(&self, handle: &str) -> bool {
        self.volume(handle).join("data").exists()
    }

    fn volume(&self, handle: &str) -> PathBuf {
        self.folder.path().join("volumes").join(handle)
    }

    /// Stops, closing all its connections.
    pub fn stop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
        let _ = std::fs::remove_file(self.socket());
    }

    /// Listens (again).
    pub fn listen(&mut self) {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let listener = {
            let _entered = runtime.enter();
            UnixListener::bind(self.socket()).unwrap()
        };
        let about = Arc::new((self.name.clone(), self.folder.path().join("volumes")));
        let state = Arc::clone(&self.state);
        runtime.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (state, about) = (Arc::clone(&state), Arc::clone(&about));
                tokio::spawn(async move {
                    let service = hyper::service::service_fn(move |request| {
                        serve(Arc::clone(&state), Arc::clone(&about), request)
                    });
                    let server = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                    let _ = server.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        self.runtime = Some(runtime);
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.stop();
    }
}

fn one(message: &impl Message) -> Answer {
    Answer::Message(message.encode_to_vec())
}

fn answer(state: &mut State, name: &str, volumes: &Path, path: &str, body: &[u8]) -> Answer {
    let mood = state.mood.clone();
    match mood {
        Mood::Hangs => return Answer::Silence,
        Mood::Garbage => return Answer::Message(vec![0xff; 9]),
        _ => {}
    }
    let typed = |has: bool| Capabilities {
        capabilities: if has { vec![Wrapped { inner: Some(Typed { r#type: 1 }) }] } else { Vec::new() },
    };
    match path {
        "/csi.v1.Identity/GetPluginInfo" => one(&PluginInfo {
            name: if let Mood::Named(other) = mood { other } else { name.to_owned() },
            vendor_version: "1".into(),
            manifest: HashMap::new(),
        }),
        "/csi.v1.Identity/Probe" => one(&Probe { ready: Some(Flag { value: mood != Mood::NotReady }) }),
        "/csi.v1.Identity/GetPluginCapabilities" => one(&typed(mood != Mood::NoController)),
        "/csi.v1.Controller/ControllerGetCapabilities" => one(&typed(mood != Mood::NoDeletion)),
        "/csi.v1.Controller/DeleteVolume" => {
            let request = DeleteVolume::decode(body).unwrap();
            state.deletions.push((request.volume_id.clone(), request.secrets));
            if let Mood::Fails(code, text) = mood {
                return Answer::Failure(code, text);
            }
            // A volume that is not there is deleted.
            let _ = std::fs::remove_dir_all(volumes.join(&request.volume_id));
            Answer::Message(Vec::new())
        }
        _ => Answer::Failure(12, "unknown method".into()),
    }
}

type Body = UnsyncBoxBody<Bytes, std::io::Error>;

async fn serve(
    state: Arc<Mutex<State>>,
    about: Arc<(String, PathBuf)>,
    request: http::Request<Incoming>,
) -> Result<http::Response<Body>, std::io::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await.map_err(std::io::Error::other)?.to_bytes();
    let message = body.get(5..).unwrap_or_default();
    let answer = answer(&mut state.lock().unwrap(), &about.0, &about.1, &path, message);
    let response = http::Response::builder().header("content-type", "application/grpc");
    let (response, frames) = match answer {
        Answer::Message(message) => {
            let mut trailers = http::HeaderMap::new();
            trailers.insert("grpc-status", http::HeaderValue::from_static("0"));
            (response, vec![Ok(Frame::data(frame(&message))), Ok(Frame::trailers(trailers))])
        }
        Answer::Failure(code, text) => {
            (response.header("grpc-status", code.to_string()).header("grpc-message", text), Vec::new())
        }
        Answer::Silence => std::future::pending().await,
    };
    let body = StreamBody::new(futures::stream::iter(frames));
    response.body(UnsyncBoxBody::new(body)).map_err(std::io::Error::other)
}

/// gRPC's frame: not compressed, length, message.
fn frame(message: &[u8]) -> Bytes {
    let mut frame = BytesMut::with_capacity(message.len() + 5);
    frame.put_u8(0);
    frame.put_u32(u32::try_from(message.len()).unwrap());
    frame.put_slice(message);
    frame.freeze()
}
