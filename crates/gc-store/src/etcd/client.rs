//! Calls to etcd.

use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::members::{Health, Member, Members, Patience, Repeat, Trouble};
use super::protocol::{
    CompactionRequest, Empty, LARGEST_MESSAGE, PutRequest, PutResponse, RangeRequest, RangeResponse,
    StatusResponse, TxnRequest, TxnResponse, WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::{EtcdOptions, EtcdTls};

/// Silence after which a connection is probed, and closed if the answer takes as long again. etcd refuses probes more frequent than
/// every 5 s.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// Maximum time to connect to a member if there are others.
const CONNECT: Duration = Duration::from_secs(1);
/// Interval at which several members are probed.
const PROBE_INTERVAL: Duration = Duration::from_millis(200);
/// Time that they have to answer a probe.
const PROBE_PATIENCE: Patience =
    Patience { silence: Duration::from_millis(500), lag: Duration::from_millis(200) };
/// Metadata that makes a member without a leader refuse a request instead of delaying it.
const REQUIRE_LEADER: &str = "hasleader";

/// Reason why a call failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum CallError {
    /// etcd refused, or the connection broke.
    #[error(transparent)]
    Status(#[from] Status),
    /// The TLS material cannot be used.
    #[error(transparent)]
    Transport(#[from] tonic::transport::Error),
    /// An endpoint is malformed.
    #[error("{0}")]
    Endpoint(String),
    /// The member no longer answers.
    #[error("the member of etcd does not answer")]
    Silent,
    /// Another leader was elected during the request. Everything that the member had sent to the previous leader is lost.
    #[error("the leader of etcd has changed")]
    LeaderChanged,
}

/// A client of one etcd. Cheap to clone; calls are spread over the members that answer, whose connections are opened when
/// needed and reopened when they break.
#[derive(Clone, Debug)]
pub(super) struct EtcdClient {
    members: Arc<Members>,
    /// Key read by probes. The user may not be allowed to read keys outside the store.
    probe_key: Arc<[u8]>,
}

impl CallError {
    /// Reports whether etcd itself refused the request, so the member is alive even if it cannot perform it.
    pub(super) fn is_of_etcd(&self) -> bool {
        matches!(self, Self::Status(status) if status.message().starts_with("etcdserver: "))
    }
}

/// A running watch, which is interrupted when its member no longer answers.
pub(super) struct MemberWatch {
    stream: Streaming<WatchResponse>,
    down: BoxFuture<'static, ()>,
}

impl MemberWatch {
    /// Returns the next response; `None` at the end.
    pub(super) async fn message(&mut self) -> Result<Option<WatchResponse>, CallError> {
        tokio::select! {
            message = self.stream.message() => Ok(message?),
            () = &mut self.down => Err(CallError::Silent),
        }
    }
}

impl EtcdClient {
    /// Creates a client, which probes the members by reading this key. Must be called within a tokio runtime, on which the probes
    /// run.
    pub(super) fn new(
        endpoints: &[String],
        options: &EtcdOptions,
        probe_key: &str,
    ) -> Result<Self, CallError> {
        if endpoints.is_empty() {
            return Err(CallError::Endpoint("no endpoint is given".to_owned()));
        }
        let (is_alone, mut members) = (endpoints.len() == 1, Vec::with_capacity(endpoints.len()));
        for url in endpoints {
            let endpoint = endpoint(url, options)?;
            let patience = if is_alone { options.timeout } else { CONNECT.min(options.timeout) };
            members.push(Member::new(endpoint.connect_timeout(patience).connect_lazy()));
        }
        let members = Arc::new(Members::new(members));
        let probe_key: Arc<[u8]> = probe_key.as_bytes().into();
        if !is_alone {
            tokio::spawn(probe(Arc::downgrade(&members), Arc::clone(&probe_key)));
        }
        Ok(Self { members, probe_key })
    }

    /// Refuses endpoints of different clusters, between which requests would alternate. Members that do not answer now are checked
    /// once they do.
    pub(super) async fn check_clusters(&self) -> Result<(), CallError> {
        let members = &self.members;
        if let [_, _, ..] = members.all() {
            let asked = members.all().iter().map(|member| async move {
                let answer = tokio::time::timeout(CONNECT, ask_for_itself(member, &self.probe_key)).await;
                let cluster =
                    answer.ok().and_then(|answer| answer.ok()?.header).map(|header| header.cluster_id);
                (member, cluster)
            });
            for (member, cluster) in futures::future::join_all(asked).await {
                if cluster.is_some_and(|cluster| !members.admit(member, cluster)) {
                    return Err(CallError::Endpoint(
                        "they are members of different etcd clusters".to_owned(),
                    ));
                }
            }
        }
        Ok(())
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        Ok(self.call("/etcdserverpb.KV/Range", request, Repeat::Harmless).await?.0)
    }

    /// Writes a key whose value does not matter.
    pub(super) async fn put(&self, request: PutRequest) -> Result<PutResponse, CallError> {
        Ok(self.call("/etcdserverpb.KV/Put", request, Repeat::Harmless).await?.0)
    }

    /// Commits a transaction. Also returns whether it may have been performed before, in which case its conditions may not hold
    /// because of itself.
    pub(super) async fn transaction(
        &self,
        request: TxnRequest,
        repeat: Repeat,
    ) -> Result<(TxnResponse, bool), CallError> {
        self.call("/etcdserverpb.KV/Txn", request, repeat).await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), CallError> {
        let request = CompactionRequest { revision };
        let _: (Empty, bool) = self.call("/etcdserverpb.KV/Compact", request, Repeat::Harmless).await?;
        Ok(())
    }

    pub(super) async fn status(&self) -> Result<StatusResponse, CallError> {
        Ok(self.call("/etcdserverpb.Maintenance/Status", Empty {}, Repeat::Harmless).await?.0)
    }

    /// Opens a watch, which ends when the stream is dropped.
    pub(super) async fn watch(&self, request: WatchCreateRequest) -> Result<MemberWatch, CallError> {
        let open = |member: &Member| {
            let (channel, down, request) = (member.channel.clone(), member.down(), request.clone());
            async move {
                // etcd ends a watch whose request stream ends.
                let requests = futures::stream::iter([WatchRequest { create_request: Some(request) }])
                    .chain(futures::stream::pending());
                let mut down = down.boxed();
                let mut grpc = ready(channel).await?;
                let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
                let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
                let stream = tokio::select! {
                    stream = grpc.streaming(with_leader(requests), path, codec) => stream?.into_inner(),
                    () = &mut down => return Err(CallError::Silent),
                };
                Ok(MemberWatch { stream, down })
            }
        };
        Ok(self.members.ask(Repeat::Harmless, open).await?.0)
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q, repeat: Repeat) -> Result<(A, bool), CallError>
    where
        Q: Message + Clone + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let attempt = |member: &Member| {
            let (lost, sent) =
                (self.members.lost(member), unary(member.channel.clone(), path, request.clone()));
            async move {
                tokio::select! {
                    answer = sent => answer,
                    error = lost => Err(error),
                }
            }
        };
        self.members.ask(repeat, attempt).await
    }
}

async fn unary<Q, A>(channel: Channel, path: &'static str, request: Q) -> Result<A, CallError>
where
    Q: Message + Send + Sync + 'static,
    A: Message + Default + Send + Sync + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec = ProstCodec::<Q, A>::default();
    Ok(grpc.unary(with_leader(request), PathAndQuery::from_static(path), codec).await?.into_inner())
}

async fn ready(channel: Channel) -> Result<tonic::client::Grpc<Channel>, CallError> {
    // A page of etcd's contents may exceed gRPC's default limit of 4 MiB. Memory for a message is allocated once its length is
    // read.
    let mut grpc = tonic::client::Grpc::new(channel).max_decoding_message_size(LARGEST_MESSAGE);
    grpc.ready().await?;
    Ok(grpc)
}

/// Probes which members answer, for as long as the client lives.
async fn probe(members: Weak<Members>, key: Arc<[u8]>) {
    loop {
        {
            let Some(members) = members.upgrade() else { return };
            members.check(PROBE_PATIENCE, |member| health(&members, member, &key)).await;
        }
        tokio::time::sleep(PROBE_INTERVAL).await;
    }
}

async fn health(members: &Members, member: &Member, key: &[u8]) -> Health {
    match ask_for_itself(member, key).await {
        Ok(answer) => match answer.header {
            Some(header) if !members.admit(member, header.cluster_id) => Health::Down,
            Some(header) => {
                members.note_term(header.raft_term);
                Health::Up
            }
            None => Health::Up,
        },
        // A refusal is an answer, too: a user without access to this key may read others.
        Err(error) if Trouble::of(&error).is_none() => Health::Up,
        Err(error) if error.is_of_etcd() => Health::Leaderless,
        Err(_) => Health::Down,
    }
}

/// Reads a key once a majority has confirmed that the member's state is the newest.
async fn ask_for_itself(member: &Member, key: &[u8]) -> Result<RangeResponse, CallError> {
    let request = RangeRequest { key: key.to_vec(), count_only: true, ..RangeRequest::default() };
    unary(member.channel.clone(), "/etcdserverpb.KV/Range", request).await
}

fn with_leader<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.metadata_mut().insert(REQUIRE_LEADER, MetadataValue::from_static("true"));
    request
}

fn endpoint(url: &str, options: &EtcdOptions) -> Result<Endpoint, CallError> {
    let url = match (url.contains("://"), &options.tls) {
        (true, _) => url.to_owned(),
        (false, Some(_)) => format!("https://{url}"),
        (false, None) => format!("http://{url}"),
    };
    let endpoint = Endpoint::from_shared(url.clone())
        .map_err(|error| CallError::Endpoint(format!("{url} is not a URL: {error}")))?
        .http2_keep_alive_interval(KEEP_ALIVE)
        .keep_alive_timeout(KEEP_ALIVE)
        .keep_alive_while_idle(true);
    match (endpoint.uri().scheme_str(), &options.tls) {
        (Some("https"), tls) => Ok(endpoint.tls_config(tls_config(tls.as_ref()))?),
        (Some("http"), None) => Ok(endpoint),
        (Some("http"), Some(_)) => {
            Err(CallError::Endpoint(format!("{url} does not speak TLS, and TLS files are given")))
        }
        _ => Err(CallError::Endpoint(format!("{url} begins with neither http:// nor https://"))),
    }
}

fn tls_config(tls: Option<&EtcdTls>) -> ClientTlsConfig {
    let Some(tls) = tls else { return ClientTlsConfig::new() };
    let config = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&tls.ca));
    match &tls.identity {
        Some((certificate, key)) => config.identity(Identity::from_pem(certificate, key)),
        None => config,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)] // tests
    use super::super::impostor::{Body, Impostor, Responder, refusal, script, whole};
    use super::super::protocol::ResponseHeader;
    use super::super::tests::{PERMISSION_DENIED, UNAVAILABLE};
    use super::*;

    #[test]
    fn an_endpoint_has_the_scheme_that_its_options_need() {
        let plain = EtcdOptions::default();
        let files = EtcdTls { ca: Vec::new(), identity: None };
        let tls = EtcdOptions { tls: Some(files), ..EtcdOptions::default() };
        let refused = |message: &str| Err(message.to_owned());
        let rows = [
            ("127.0.0.1:2379", &plain, Ok("http")),
            ("http://127.0.0.1:2379", &plain, Ok("http")),
            ("127.0.0.1:2379", &tls, Ok("https")),
            ("https://127.0.0.1:2379", &tls, Ok("https")),
            ("https://127.0.0.1:2379", &plain, Ok("https")),
            (
                "http://127.0.0.1:2379",
                &tls,
                refused("http://127.0.0.1:2379 does not speak TLS, and TLS files are given"),
            ),
            ("ftp://127.0.0.1", &plain, refused("ftp://127.0.0.1 begins with neither http:// nor https://")),
        ];
        for (url, options, expected) in rows {
            let made = endpoint(url, options).map_err(|error| match error {
                CallError::Endpoint(reason) => reason,
                other => other.to_string(),
            });
            let scheme = made.as_ref().map(|made| made.uri().scheme_str().unwrap_or_default());
            assert_eq!(scheme.map_err(Clone::clone), expected, "{url}");
        }
    }

    fn range(cluster_id: u64, raft_term: u64) -> Body {
        let header = Some(ResponseHeader { cluster_id, raft_term, revision: 10 });
        whole(&RangeResponse { header, ..RangeResponse::default() })
    }

    /// A member is healthy if it answers, even by a refusal, and belongs to the cluster of the others.
    #[tokio::test]
    async fn the_health_of_a_member_is_what_it_answers_to_a_probe() {
        let rows: [(&str, Body, Health, u64); 6] = [
            ("an answer", range(7, 5), Health::Up, 5),
            ("another cluster", range(8, 5), Health::Down, 0),
            ("no header", whole(&RangeResponse::default()), Health::Up, 0),
            ("no access", refusal(PERMISSION_DENIED, "etcdserver: permission denied"), Health::Up, 0),
            ("no leader", refusal(UNAVAILABLE, "etcdserver: no leader"), Health::Leaderless, 0),
            ("a broken connection", refusal(UNAVAILABLE, "broken"), Health::Down, 0),
        ];
        for (name, answer, expected, term) in rows {
            let impostor = Impostor::start([("Range", script([answer]))].into());
            let endpoint = endpoint(&impostor.endpoint(), &EtcdOptions::default()).unwrap();
            let members = Members::new(vec![Member::new(endpoint.connect_lazy())]);
            let [member] = members.all() else { unreachable!() };
            assert!(members.admit(member, 7));
            assert_eq!(health(&members, member, b"probed").await, expected, "{name}");
            assert_eq!(members.term(), term, "{name}");
            let probed =
                RangeRequest { key: b"probed".to_vec(), count_only: true, ..RangeRequest::default() };
            assert_eq!(impostor.requests::<RangeRequest>("Range"), [probed], "{name}");
        }
    }

    #[tokio::test]
    async fn endpoints_of_different_clusters_are_refused_and_silent_ones_are_not() {
        let broken = || refusal(UNAVAILABLE, "broken");
        let rows: [(&str, Vec<Body>, bool); 4] = [
            ("one cluster", vec![range(7, 1), range(7, 1)], true),
            ("two clusters", vec![range(7, 1), range(8, 1)], false),
            ("one that does not answer", vec![range(7, 1), broken()], true),
            ("one alone", vec![range(7, 1)], true),
        ];
        for (name, answers, expected) in rows {
            let start = |answer: Body| Impostor::start([("Range", script([answer]))].into());
            let impostors: Vec<Impostor> = answers.into_iter().map(start).collect();
            let members = impostors.iter().map(|impostor| {
                let endpoint = endpoint(&impostor.endpoint(), &EtcdOptions::default()).unwrap();
                Member::new(endpoint.connect_lazy())
            });
            let members = Arc::new(Members::new(members.collect()));
            let client = EtcdClient { members, probe_key: b"probed".as_slice().into() };
            assert_eq!(client.check_clusters().await.is_ok(), expected, "{name}");
            // With a single endpoint, there is nothing to compare.
            let asked = impostors.iter().map(|impostor| impostor.asked("Range")).sum::<usize>();
            assert_eq!(asked, if impostors.len() > 1 { 2 } else { 0 }, "{name}");
        }
    }

    /// One member has no other to be compared with.
    #[tokio::test]
    async fn several_members_are_probed_while_the_client_lives() {
        let start = |_| Impostor::start([("Range", Arc::new(|_: &[u8]| range(7, 1)) as Responder)].into());
        let impostors = [0, 1, 2].map(start);
        let connect = |impostors: &[Impostor]| {
            let endpoints: Vec<String> = impostors.iter().map(Impostor::endpoint).collect();
            EtcdClient::new(&endpoints, &EtcdOptions::default(), "probed").unwrap()
        };
        let (two, one) = (connect(&impostors[..2]), connect(&impostors[2..]));
        while impostors[..2].iter().any(|impostor| impostor.asked("Range") < 3) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!((two.members.term(), impostors[2].asked("Range")), (1, 0));
        let members = Arc::downgrade(&two.members);
        drop((two, one));
        while members.strong_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[test]
    fn a_refusal_by_etcd_is_no_broken_connection() {
        let status = |message: &str| CallError::Status(Status::unavailable(message));
        let rows = [
            (status("etcdserver: no leader"), true),
            (status("the etcdserver: is gone"), false),
            (CallError::Silent, false),
            (CallError::LeaderChanged, false),
        ];
        for (error, expected) in rows {
            assert_eq!(error.is_of_etcd(), expected, "{error:?}");
        }
    }

    #[test]
    fn without_an_endpoint_there_is_no_client() {
        let made = EtcdClient::new(&[], &EtcdOptions::default(), "key").err().map(|error| error.to_string());
        assert_eq!(made.as_deref(), Some("no endpoint is given"));
    }
}
