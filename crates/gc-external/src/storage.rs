//! Storage that is deleted outside the API server: volumes of CSI drivers, with their secrets, and directories.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use futures::future::BoxFuture;
use gc_collectors::engine::StorageFailure;
use gc_collectors::volumes::secrets::{self, SecretPlace, SecretSource};
use gc_kube::{ApiClient, Outside, OutsideAnswer};
use gc_types::{DeletionSecret, ObjectKey, OutsideCall, Storage};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use serde_json::Value;

use crate::csi::{CsiClient, CsiError, DriverEndpoint, Options};
use crate::host_path::remove_folder;

/// Storage behind CSI drivers, and in directories.
pub struct StorageOutside {
    client: ApiClient,
    drivers: Arc<BTreeMap<String, CsiClient>>,
    host_path: bool,
}

impl StorageOutside {
    /// Creates access to the volumes of these drivers and, with `host_path`, to directories on this machine. Secrets and storage
    /// classes are read with `client`. Must be called within a tokio runtime.
    #[must_use]
    pub fn new(client: ApiClient, endpoints: &[DriverEndpoint], calls: Options, host_path: bool) -> Self {
        let client_of = |endpoint: &DriverEndpoint| {
            (endpoint.driver().to_owned(), CsiClient::new(endpoint.clone(), calls))
        };
        let drivers = endpoints.iter().map(client_of).collect();
        Self { client, drivers: Arc::new(drivers), host_path }
    }
}

impl Outside for StorageOutside {
    fn call(&self, key: ObjectKey, call: OutsideCall) -> BoxFuture<'static, OutsideAnswer> {
        let (client, drivers, host_path) = (self.client.clone(), Arc::clone(&self.drivers), self.host_path);
        Box::pin(async move {
            let OutsideCall::DeleteStorage(storage) = call else {
                return OutsideAnswer::Machine(Err("machines are not known here".to_owned()));
            };
            match *storage {
                Storage::Csi { driver, handle, secret } => {
                    let Some(driver) = drivers.get(&*driver) else {
                        return refused(format!("no endpoint of CSI driver {driver} is known"));
                    };
                    let (secrets, remark) = secrets(&client, &key.name, &secret).await;
                    let result = driver.delete_volume(&handle, secrets).await;
                    let failed = |error: CsiError| StorageFailure {
                        in_use: error.is_in_use(),
                        message: error.to_string(),
                    };
                    OutsideAnswer::Storage(remark, result.map_err(failed))
                }
                Storage::HostPath { path } if host_path => {
                    let removed = tokio::task::spawn_blocking(move || remove_folder(Path::new(&*path))).await;
                    match removed {
                        Ok(Ok(())) => OutsideAnswer::Storage(None, Ok(())),
                        Ok(Err(message)) => refused(message),
                        Err(error) => refused(error.to_string()),
                    }
                }
                Storage::HostPath { .. } => refused("host paths are not deleted here".to_owned()),
            }
        })
    }
}

fn refused(message: String) -> OutsideAnswer {
    OutsideAnswer::Storage(None, Err(StorageFailure { in_use: false, message }))
}

/// Reason why something could not be read from the API server.
#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("it does not exist")]
    Absent,
    #[error("the server answered {0}")]
    Refused(StatusCode),
    #[error("{0}")]
    Unreadable(String),
}

async fn read(client: &ApiClient, path: String) -> Result<Value, ReadError> {
    let unreadable = |error: &dyn std::fmt::Display| ReadError::Unreadable(error.to_string());
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(http::header::ACCEPT, "application/json")
        .body(Full::default())
        .map_err(|error| unreadable(&error))?;
    let answer = client.call(request).await.map_err(|error| unreadable(&error))?;
    match answer.head.status {
        StatusCode::OK => serde_json::from_slice(&answer.body).map_err(|error| unreadable(&error)),
        StatusCode::NOT_FOUND => Err(ReadError::Absent),
        status => Err(ReadError::Refused(status)),
    }
}

/// Returns the secrets for a deletion, and a remark about them. If they are unavailable, the driver is called without them, because
/// it knows best whether it needs them (spec 9.7).
async fn secrets(
    client: &ApiClient,
    volume: &str,
    secret: &DeletionSecret,
) -> (HashMap<String, String>, Option<String>) {
    let without =
        |why: String| (HashMap::new(), Some(format!("{why}; the storage is deleted without secrets")));
    let place = match secrets::source(secret) {
        SecretSource::None => return (HashMap::new(), None),
        SecretSource::Secret(place) => place,
        SecretSource::Class(class) => {
            let path = format!("/apis/storage.k8s.io/v1/storageclasses/{class}");
            let parameters = match read(client, path).await {
                Ok(found) => serde_json::from_value(found["parameters"].clone()).unwrap_or_default(),
                // Nothing shows that there ever were any.
                Err(ReadError::Absent) => return (HashMap::new(), None),
                Err(error) => return without(format!("storage class {class}: {error}")),
            };
            match secrets::of_class(&parameters, volume, secret) {
                Ok(Some(place)) => place,
                Ok(None) => return (HashMap::new(), None),
                Err(error) => return without(format!("storage class {class}: {error}")),
            }
        }
    };
    match read_secret(client, &place).await {
        Ok(secrets) => (secrets, None),
        Err(error) => without(format!("secret {}/{}: {error}", place.namespace, place.name)),
    }
}

async fn read_secret(client: &ApiClient, place: &SecretPlace) -> Result<HashMap<String, String>, ReadError> {
    let SecretPlace { namespace, name } = place;
    let plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-.".contains(&byte));
    if !plain(namespace) || !plain(name) {
        return Err(ReadError::Unreadable("that is no name".to_owned()));
    }
    let found = read(client, format!("/api/v1/namespaces/{namespace}/secrets/{name}")).await?;
    let mut secrets = HashMap::new();
    for (key, value) in found["data"].as_object().into_iter().flatten() {
        let bytes = base64::engine::general_purpose::STANDARD.decode(value.as_str().unwrap_or_default());
        let text = bytes.ok().and_then(|bytes| String::from_utf8(bytes).ok());
        let text = text.ok_or_else(|| ReadError::Unreadable(format!("{key} is no text")))?;
        secrets.insert(key.clone(), text);
    }
    Ok(secrets)
}
