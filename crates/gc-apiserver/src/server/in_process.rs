//! Access for the process that the server runs in: calls its service without a connection.

use std::sync::{Arc, Weak};

use bytes::Bytes;
use gc_registry::api::{Attributes, Authorizer as _, UserInfo};
use http::{Request, Response};
use http_body_util::BodyExt;
use http_body_util::combinators::UnsyncBoxBody;

use crate::auth::authentication::authenticated;
use crate::auth::client_certificates::{CertificateIdentity, CertifiedUser, ClientCertificate};
use crate::auth::rbac::Question;
use crate::serve::service;
use crate::state::State;
use crate::transport::streams::CutOff;

/// Calls the server's HTTP service under one identity. Cheap to clone; its requests pass the same stages as any other.
#[derive(Clone)]
pub struct InProcess {
    state: Arc<State>,
    identity: CertificateIdentity,
}

impl std::fmt::Debug for InProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InProcess").field("user", &self.identity.name).finish_non_exhaustive()
    }
}

/// Access that does not keep the server alive, for components that the server owns; otherwise they would keep each other alive
/// forever.
#[derive(Clone)]
pub struct WeakInProcess {
    state: Weak<State>,
    identity: CertificateIdentity,
}

impl std::fmt::Debug for WeakInProcess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WeakInProcess").field("user", &self.identity.name).finish_non_exhaustive()
    }
}

impl WeakInProcess {
    /// Returns strong access, unless the server has ended.
    #[must_use]
    pub fn upgrade(&self) -> Option<InProcess> {
        Some(InProcess { state: self.state.upgrade()?, identity: Arc::clone(&self.identity) })
    }
}

impl InProcess {
    /// Returns access that does not keep the server alive.
    #[must_use]
    pub fn downgrade(&self) -> WeakInProcess {
        WeakInProcess { state: Arc::downgrade(&self.state), identity: Arc::clone(&self.identity) }
    }

    pub(crate) fn new(state: Arc<State>, user: &str) -> Self {
        Self::with_groups(state, user, &["system:masters"])
    }

    pub(crate) fn with_groups(state: Arc<State>, user: &str, groups: &[&str]) -> Self {
        let groups = groups.iter().map(ToString::to_string).collect();
        Self { state, identity: Arc::new(CertifiedUser { name: user.to_owned(), groups, ends: None }) }
    }

    /// Returns access as another user.
    #[must_use]
    pub fn as_user(&self, user: &UserInfo) -> Self {
        let (name, groups) = (user.name.clone(), user.groups.clone());
        let identity = Arc::new(CertifiedUser { name, groups, ends: None });
        Self { state: Arc::clone(&self.state), identity }
    }

    /// Returns the URL, without a path, by which clients on this machine reach the server.
    #[must_use]
    pub fn url(&self) -> String {
        format!("https://{}", self.state.advertised())
    }

    fn user(&self) -> UserInfo {
        let (name, groups) = (&self.identity.name, &self.identity.groups);
        UserInfo { name: name.clone(), groups: groups.clone(), ..UserInfo::default() }
    }

    /// Reports whether the user may perform an action on a resource.
    #[must_use]
    pub fn may(&self, attributes: &Attributes<'_>) -> bool {
        self.state.access.rbac.allows(&authenticated(self.user()), attributes)
    }

    /// Reports whether the user may access a path that is not a resource; the verb is a method in lower case.
    #[must_use]
    pub fn may_path(&self, verb: &str, path: &str) -> bool {
        self.state.access.rbac.decide(&authenticated(self.user()), &Question::Path { verb, path }).allowed
    }

    /// Returns the namespaces in which the user may have rights beyond the cluster-wide ones.
    #[must_use]
    pub fn namespaces(&self) -> Vec<String> {
        self.state.access.rbac.namespaces_of(&authenticated(self.user()))
    }

    /// Answers a request.
    pub fn call<B>(
        &self,
        request: Request<B>,
    ) -> impl Future<Output = Response<UnsyncBoxBody<Bytes, CutOff>>> + Send + use<B>
    where
        B: http_body::Body<Data = Bytes> + Send + Sync + 'static,
        B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    {
        let (state, identity) = (Arc::clone(&self.state), Arc::clone(&self.identity));
        async move {
            match service::serve(state, ClientCertificate::Verified(identity), request).await {
                Ok(answer) => answer.map(BodyExt::boxed_unsync),
                Err(never) => match never {},
            }
        }
    }
}
