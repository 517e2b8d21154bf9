//! Calls to etcd.

use std::time::Duration;

use futures::StreamExt as _;
use http::uri::PathAndQuery;
use prost::Message;
use tonic::metadata::MetadataValue;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use super::protocol::{
    CompactionRequest, Empty, PutRequest, PutResponse, RangeRequest, RangeResponse, TxnRequest, TxnResponse,
    WatchCreateRequest, WatchRequest, WatchResponse,
};
use super::{EtcdOptions, EtcdTls};

/// Connections are probed after this much silence, and closed if the answer takes that long again.
const KEEP_ALIVE: Duration = Duration::from_secs(10);
/// The metadata by which a member without a leader refuses a request instead of letting it wait.
const REQUIRE_LEADER: &str = "hasleader";

/// Why a call failed.
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
}

/// A client of one etcd. Cheap to clone; calls are spread over the endpoints, whose connections are opened when
/// needed and reopened when they break.
#[derive(Clone, Debug)]
pub(super) struct EtcdClient(Channel);

impl EtcdClient {
    /// Must be called within a tokio runtime.
    pub(super) fn new(endpoints: &[String], options: &EtcdOptions) -> Result<Self, CallError> {
        if endpoints.is_empty() {
            return Err(CallError::Endpoint("no endpoint is given".to_owned()));
        }
        let endpoints: Vec<_> =
            endpoints.iter().map(|url| endpoint(url, options)).collect::<Result<_, _>>()?;
        Ok(Self(Channel::balance_list(endpoints.into_iter())))
    }

    pub(super) async fn range(&self, request: RangeRequest) -> Result<RangeResponse, CallError> {
        self.call("/etcdserverpb.KV/Range", request).await
    }

    pub(super) async fn put(&self, request: PutRequest) -> Result<PutResponse, CallError> {
        self.call("/etcdserverpb.KV/Put", request).await
    }

    pub(super) async fn transaction(&self, request: TxnRequest) -> Result<TxnResponse, CallError> {
        self.call("/etcdserverpb.KV/Txn", request).await
    }

    pub(super) async fn compact(&self, revision: i64) -> Result<(), CallError> {
        let _: Empty = self.call("/etcdserverpb.KV/Compact", CompactionRequest { revision }).await?;
        Ok(())
    }

    /// Opens a watch, which ends when the stream is dropped.
    pub(super) async fn watch(
        &self,
        request: WatchCreateRequest,
    ) -> Result<Streaming<WatchResponse>, CallError> {
        // etcd ends a watch whose request stream ends.
        let requests = futures::stream::iter([WatchRequest { create_request: Some(request) }])
            .chain(futures::stream::pending());
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<WatchRequest, WatchResponse>::default();
        let path = PathAndQuery::from_static("/etcdserverpb.Watch/Watch");
        Ok(grpc.streaming(with_leader(requests), path, codec).await?.into_inner())
    }

    async fn call<Q, A>(&self, path: &'static str, request: Q) -> Result<A, CallError>
    where
        Q: Message + Send + Sync + 'static,
        A: Message + Default + Send + Sync + 'static,
    {
        let mut grpc = self.ready().await?;
        let codec = ProstCodec::<Q, A>::default();
        Ok(grpc.unary(with_leader(request), PathAndQuery::from_static(path), codec).await?.into_inner())
    }

    async fn ready(&self) -> Result<tonic::client::Grpc<Channel>, CallError> {
        // etcd's contents were written within its own limit, and a page of them may exceed gRPC's default of 4 MiB.
        let mut grpc = tonic::client::Grpc::new(self.0.clone()).max_decoding_message_size(usize::MAX);
        grpc.ready().await?;
        Ok(grpc)
    }
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
        .connect_timeout(options.timeout)
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
