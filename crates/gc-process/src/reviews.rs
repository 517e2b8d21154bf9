//! Users and their permissions, as an API server reports them: TokenReview and SubjectAccessReview.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use gc_kube::ApiClient;
use gc_registry::api::UserInfo;
use http::Method;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::preflight;
use crate::user_limits::UserLimits;

/// Validity of an API server's answer, the same as for kube-controller-manager's own pages.
const ANSWER_LIFETIME: Duration = Duration::from_secs(10);
/// Maximum number of remembered answers of a kind; beyond that, the oldest are forgotten.
const REMEMBERED_ANSWERS: usize = 1_024;
/// Maximum number of concurrent reviews, in all and of one user. Tokens that have belonged to no user so far count as those of one
/// user.
const REVIEWS_AT_ONCE: (usize, usize) = (4, 2);
/// Stands for the name of a user who is not known yet.
const UNKNOWN: &str = "";
/// Longest token that is reviewed, in bytes.
const LONGEST_TOKEN: usize = 16 << 10;

/// Returns the name of a client's user, as its server knows it; `None` if the server does not report it.
pub async fn own_name(client: &ApiClient) -> Option<String> {
    let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
    let answer = client.call(preflight::request(Method::POST, path, Some(&review))).await.ok()?;
    let answered: Value = serde_json::from_slice(&answer.body).ok()?;
    Some(answered["status"]["userInfo"]["username"].as_str()?.to_owned())
}

/// Reason why there is no answer.
#[derive(Clone, Debug, thiserror::Error, PartialEq, Eq)]
pub enum ReviewError {
    /// The API server gave no review.
    #[error("{0} cannot be created: {1}")]
    Unanswered(&'static str, String),
}

/// Remembered answers, by a hash of the question.
struct CachedReviews<T>(Mutex<BTreeMap<[u8; 32], (Instant, T)>>);

impl<T: Clone> CachedReviews<T> {
    fn get(&self, question: &[u8; 32]) -> Option<T> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (at, answer) = answers.get(question)?;
        (at.elapsed() < ANSWER_LIFETIME).then(|| answer.clone())
    }

    /// Returns the last answer, however old.
    fn last(&self, question: &[u8; 32]) -> Option<T> {
        let answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(question).map(|(_, answer)| answer.clone())
    }

    fn put(&self, question: [u8; 32], answer: T) {
        let mut answers = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= REMEMBERED_ANSWERS && !answers.contains_key(&question) {
            let oldest = answers.iter().min_by_key(|(_, (at, _))| *at).map(|(question, _)| *question);
            oldest.map(|question| answers.remove(&question));
        }
        answers.insert(question, (Instant::now(), answer));
    }
}

/// Reviews of one API server.
pub struct Reviews {
    client: ApiClient,
    users: CachedReviews<UserInfo>,
    /// Tokens that belong to no user: many of them do not displace users.
    strangers: CachedReviews<()>,
    permissions: CachedReviews<bool>,
    turns: UserLimits,
}

impl Reviews {
    /// Creates reviews through this client, whose user must be allowed to create both kinds.
    pub fn new(client: ApiClient) -> Self {
        Self {
            client,
            users: CachedReviews(Mutex::default()),
            strangers: CachedReviews(Mutex::default()),
            permissions: CachedReviews(Mutex::default()),
            turns: UserLimits::new(REVIEWS_AT_ONCE.0, REVIEWS_AT_ONCE.1),
        }
    }

    /// Returns the user of a token; `None` if it belongs to no user.
    pub async fn user(&self, token: &str) -> Result<Option<UserInfo>, ReviewError> {
        if token.is_empty() || token.len() > LONGEST_TOKEN {
            return Ok(None);
        }
        // The token itself is not kept.
        let question: [u8; 32] = Sha256::digest(token).into();
        if let Some(user) = self.users.get(&question) {
            return Ok(Some(user));
        }
        if self.strangers.get(&question).is_some() {
            return Ok(None);
        }
        let name = self.users.last(&question).map_or_else(|| UNKNOWN.to_owned(), |user| user.name);
        let review = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}});
        let path = "/apis/authentication.k8s.io/v1/tokenreviews";
        let status = self.review(&name, ("TokenReview", path), &review).await?;
        let user = (status["authenticated"] == true).then(|| user_of(&status["user"]));
        match &user {
            Some(user) => self.users.put(question, user.clone()),
            None => self.strangers.put(question, ()),
        }
        Ok(user)
    }

    /// Reports whether a user may access a path that is not a resource; the verb is a method in lower case.
    pub async fn allows_path(&self, user: &UserInfo, verb: &str, path: &str) -> Result<bool, ReviewError> {
        let wish = json!({"nonResourceAttributes": {"verb": verb, "path": path}});
        self.allows(user, wish).await
    }

    /// Reports whether a user may list a resource in a namespace (an empty one means all namespaces); stars stand for all groups
    /// and resources.
    pub async fn allows_list(
        &self,
        user: &UserInfo,
        (group, resource): (&str, &str),
        namespace: &str,
    ) -> Result<bool, ReviewError> {
        let wish = json!({"resourceAttributes":
            {"verb": "list", "group": group, "resource": resource, "namespace": namespace}});
        self.allows(user, wish).await
    }

    async fn allows(&self, user: &UserInfo, mut spec: Value) -> Result<bool, ReviewError> {
        spec["user"] = user.name.as_str().into();
        spec["uid"] = user.uid.as_str().into();
        spec["groups"] = json!(user.groups);
        spec["extra"] = user.extra.iter().map(|(key, values)| (key.clone(), json!(values))).collect();
        let question: [u8; 32] = Sha256::digest(spec.to_string()).into();
        if let Some(known) = self.permissions.get(&question) {
            return Ok(known);
        }
        let review =
            json!({"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec});
        let path = "/apis/authorization.k8s.io/v1/subjectaccessreviews";
        let status = self.review(&user.name, ("SubjectAccessReview", path), &review).await?;
        let allowed = status["allowed"] == true;
        self.permissions.put(question, allowed);
        Ok(allowed)
    }

    /// Returns the status of a review, in this user's turn.
    async fn review(
        &self,
        user: &str,
        (kind, path): (&'static str, &str),
        review: &Value,
    ) -> Result<Value, ReviewError> {
        let unanswered = |why: String| ReviewError::Unanswered(kind, why);
        let _turn = self.turns.wait(user).await;
        let request = preflight::request(Method::POST, path, Some(review));
        let answer =
            self.client.call(request).await.map_err(|error| unanswered(preflight::one_line(&error)))?;
        if !answer.head.status.is_success() {
            return Err(unanswered(preflight::message(&answer)));
        }
        let mut document: Value =
            serde_json::from_slice(&answer.body).map_err(|error| unanswered(error.to_string()))?;
        Ok(document["status"].take())
    }
}

fn user_of(status: &Value) -> UserInfo {
    let texts = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
    };
    let text = |field: &str| status[field].as_str().unwrap_or_default().to_owned();
    let extra = status["extra"].as_object().into_iter().flatten();
    UserInfo {
        name: text("username"),
        uid: text("uid"),
        groups: texts(&status["groups"]),
        extra: extra.map(|(key, values)| (key.clone(), texts(values))).collect(),
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a failed unwrap is a failed test")]

    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use http::{Request, Response};
    use http_body_util::{BodyExt as _, Full};

    use super::*;

    /// Returns reviews of an API server that knows one token, whose user may read one path, and the number of requests that it
    /// received.
    fn reviews() -> (Reviews, Arc<AtomicUsize>) {
        let asked = Arc::<AtomicUsize>::default();
        let counted = Arc::clone(&asked);
        let client = ApiClient::in_process(move |request: Request<Full<Bytes>>| {
            counted.fetch_add(1, Ordering::Relaxed);
            async move {
                let path = request.uri().path().to_owned();
                let body = request.into_body().collect().await.unwrap().to_bytes();
                let spec = serde_json::from_slice::<Value>(&body).unwrap()["spec"].take();
                let (code, document) = match path.as_str() {
                    _ if spec["token"] == "broken" => (500, json!({"message": "etcd is down"})),
                    "/apis/authentication.k8s.io/v1/tokenreviews" if spec["token"] == "t" => (
                        201,
                        json!({"status": {"authenticated": true, "user": {"username": "ann", "uid": "7",
                                "groups": ["g"], "extra": {"k": ["v"]}}}}),
                    ),
                    "/apis/authentication.k8s.io/v1/tokenreviews" => (201, json!({"status": {}})),
                    _ => {
                        let expected = json!({"user": "ann", "uid": "7", "groups": ["g"], "extra": {"k": ["v"]},
                            "nonResourceAttributes": {"verb": "get", "path": "/metrics"}});
                        (201, json!({"status": {"allowed": spec == expected}}))
                    }
                };
                Response::builder().status(code).body(Full::new(Bytes::from(document.to_string()))).unwrap()
            }
        });
        (Reviews::new(client), asked)
    }

    #[tokio::test]
    async fn the_server_is_asked_once_for_each_question() {
        let (reviews, asked) = reviews();
        for _ in 0..3 {
            let user = reviews.user("t").await.unwrap().unwrap();
            assert_eq!(user.name, "ann");
            assert!(reviews.allows_path(&user, "get", "/metrics").await.unwrap());
            assert!(!reviews.allows_path(&user, "get", "/debug").await.unwrap());
            assert_eq!(reviews.user("other").await.unwrap(), None);
        }
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        // A text that cannot be a token is not sent for review.
        assert_eq!(reviews.user("").await.unwrap(), None);
        assert_eq!(reviews.user(&"x".repeat(LONGEST_TOKEN + 1)).await.unwrap(), None);
        assert_eq!(asked.load(Ordering::Relaxed), 4);
        // A failure is not an answer, and is not remembered.
        for _ in 0..2 {
            let failed = reviews.user("broken").await.unwrap_err();
            assert_eq!(failed, ReviewError::Unanswered("TokenReview", "etcd is down".into()));
        }
        assert_eq!(asked.load(Ordering::Relaxed), 6);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let remembered = CachedReviews(Mutex::default());
        for number in 0..=REMEMBERED_ANSWERS {
            remembered.put(Sha256::digest(number.to_string()).into(), number);
        }
        assert_eq!(remembered.0.lock().unwrap().len(), REMEMBERED_ANSWERS);
        assert_eq!(remembered.get(&Sha256::digest("0").into()), None, "the oldest is forgotten");
        assert_eq!(
            remembered.get(&Sha256::digest(REMEMBERED_ANSWERS.to_string()).into()),
            Some(REMEMBERED_ANSWERS)
        );
    }

    #[tokio::test]
    async fn made_up_tokens_neither_displace_nor_delay_users() {
        let (reviews, asked) = reviews();
        assert!(reviews.user("t").await.unwrap().is_some());
        for number in 0..2 * REMEMBERED_ANSWERS {
            assert_eq!(reviews.user(&format!("made up {number}")).await.unwrap(), None);
        }
        let before = asked.load(Ordering::Relaxed);
        assert!(reviews.user("t").await.unwrap().is_some());
        assert_eq!(asked.load(Ordering::Relaxed), before, "the user is remembered");
        // All turns of unknown users are taken, and more wait: a user who was known before still gets a turn at once.
        let held = [reviews.turns.wait(UNKNOWN).await, reviews.turns.wait(UNKNOWN).await];
        let mut waiting = Box::pin(reviews.user("another"));
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        reviews.users.0.lock().unwrap().values_mut().for_each(|(at, _)| *at -= 2 * ANSWER_LIFETIME);
        assert!(reviews.user("t").await.unwrap().is_some());
        assert!(futures::poll!(waiting.as_mut()).is_pending());
        drop(held);
        assert_eq!(waiting.await.unwrap(), None);
    }
}
