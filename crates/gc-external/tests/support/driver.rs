//! A small CSI driver: volumes are directories on disk, and the service is real gRPC over HTTP/2 on a real Unix socket. On request
//! it fails, does not answer, sends garbage or gives false answers. Its messages are declared here separately, so that a wrong
//! field number on either side is noticed.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};

use prost::Message;

use super::grpc::{Answer, Server};

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
struct TypedRequest {
    #[prost(int32, tag = "1")]
    r#type: i32,
}

#[derive(Clone, PartialEq, Message)]
struct WrappedBody {
    #[prost(message, optional, tag = "1")]
    inner: Option<TypedRequest>,
}

#[derive(Clone, PartialEq, Message)]
struct Capabilities {
    #[prost(message, repeated, tag = "1")]
    capabilities: Vec<WrappedBody>,
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

#[derive(Clone, PartialEq, Message)]
struct ListRequest {
    #[prost(int32, tag = "1")]
    max_entries: i32,
    #[prost(string, tag = "2")]
    starting_token: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListAnswer {
    #[prost(message, repeated, tag = "1")]
    entries: Vec<ListEntry>,
    #[prost(string, tag = "2")]
    next_token: String,
}

#[derive(Clone, PartialEq, Message)]
struct ListEntry {
    #[prost(message, optional, tag = "1")]
    volume: Option<VolumeMessage>,
    #[prost(message, optional, tag = "2")]
    status: Option<StatusMessage>,
}

#[derive(Clone, PartialEq, Message)]
struct VolumeMessage {
    #[prost(int64, tag = "1")]
    capacity_bytes: i64,
    #[prost(string, tag = "2")]
    volume_id: String,
    #[prost(map = "string, string", tag = "3")]
    volume_context: HashMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
struct StatusMessage {
    #[prost(string, repeated, tag = "1")]
    published_node_ids: Vec<String>,
}

/// Number of volumes that the driver lists at a time, however many are requested.
const LISTED_AT_ONCE: usize = 2;

/// Misbehaviour of the driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mood {
    /// Behaves well.
    Good,
    /// Answers deletions with this gRPC code and text.
    Fails(u32, String),
    /// Accepts every call and never answers.
    Silent,
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
    /// Has a controller service without lists.
    NoLists,
    /// Makes each page of its list lead to the first one.
    Circle,
}

/// State of the driver, and the calls that it received.
pub struct State {
    pub mood: Mood,
    /// Volume and secrets of each requested deletion, in order.
    pub deletions: Vec<(String, HashMap<String, String>)>,
    /// Size of each volume that is listed with one, and the nodes that it is attached to.
    pub sizes: HashMap<String, (i64, Vec<String>)>,
}

/// A driver that serves until it is dropped.
pub struct Driver {
    pub name: String,
    server: Server,
    folder: tempfile::TempDir,
    state: Arc<Mutex<State>>,
}

impl Driver {
    /// Starts a driver of this name.
    pub fn start(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("volumes")).unwrap();
        let state =
            Arc::new(Mutex::new(State { mood: Mood::Good, deletions: Vec::new(), sizes: HashMap::new() }));
        let (answering, own) = (Arc::clone(&state), name.to_owned());
        let volumes = folder.path().join("volumes");
        let answers =
            move |path: &str, body: &[u8]| answer(&mut answering.lock().unwrap(), &own, &volumes, path, body);
        let server = Server::start(folder.path().join("csi.sock"), answers);
        Self { name: name.to_owned(), server, folder, state }
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    pub fn be(&self, mood: Mood) {
        self.state().mood = mood;
    }

    /// Returns `driver=unix:///path`.
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
        self.server.stop();
    }

    /// Listens (again).
    pub fn listen(&mut self) {
        self.server.listen();
    }
}

fn answer(state: &mut State, name: &str, volumes: &Path, path: &str, body: &[u8]) -> Answer {
    let mood = state.mood.clone();
    match mood {
        Mood::Silent => return Answer::Silence,
        Mood::Garbage => return Answer::Messages(vec![vec![0xff; 9]]),
        _ => {}
    }
    let typed = |has: bool| Capabilities {
        capabilities: if has {
            vec![WrappedBody { inner: Some(TypedRequest { r#type: 1 }) }]
        } else {
            Vec::new()
        },
    };
    match path {
        "/csi.v1.Identity/GetPluginInfo" => Answer::one(&PluginInfo {
            name: if let Mood::Named(other) = mood { other } else { name.to_owned() },
            vendor_version: "1".into(),
            manifest: HashMap::new(),
        }),
        "/csi.v1.Identity/Probe" => {
            Answer::one(&Probe { ready: Some(Flag { value: mood != Mood::NotReady }) })
        }
        "/csi.v1.Identity/GetPluginCapabilities" => Answer::one(&typed(mood != Mood::NoController)),
        "/csi.v1.Controller/ControllerGetCapabilities" => {
            let mut calls = typed(mood != Mood::NoDeletion);
            if mood != Mood::NoLists {
                calls.capabilities.push(WrappedBody { inner: Some(TypedRequest { r#type: 3 }) });
            }
            Answer::one(&calls)
        }
        "/csi.v1.Controller/ListVolumes" => {
            let request = ListRequest::decode(body).unwrap();
            let mut all: Vec<String> = std::fs::read_dir(volumes)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            all.sort();
            let start: usize = request.starting_token.parse().unwrap_or_default();
            let end = (start + LISTED_AT_ONCE).min(all.len());
            let entry = |name: &String| {
                let (capacity_bytes, published_node_ids) = state.sizes.get(name).cloned().unwrap_or_default();
                let volume_context = HashMap::from([("pool".to_owned(), "a".to_owned())]);
                let volume = VolumeMessage { capacity_bytes, volume_id: name.clone(), volume_context };
                ListEntry { volume: Some(volume), status: Some(StatusMessage { published_node_ids }) }
            };
            let next_token = match mood {
                Mood::Circle => "0".to_owned(),
                _ if end < all.len() => end.to_string(),
                _ => String::new(),
            };
            Answer::one(&ListAnswer { entries: all[start..end].iter().map(entry).collect(), next_token })
        }
        "/csi.v1.Controller/DeleteVolume" => {
            let request = DeleteVolume::decode(body).unwrap();
            state.deletions.push((request.volume_id.clone(), request.secrets));
            if let Mood::Fails(code, text) = mood {
                return Answer::Failure(code, text);
            }
            // A missing volume counts as deleted.
            let _ = std::fs::remove_dir_all(volumes.join(&request.volume_id));
            Answer::Messages(vec![Vec::new()])
        }
        _ => Answer::failure(12, "unknown method"),
    }
}
