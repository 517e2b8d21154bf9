//! ConversionReview: builds the request to a conversion webhook, and validates its answer.

use serde_json::{Map, Value, json};

use crate::crd::go_type;
use crate::schema::reviews;
use crate::webhooks::answer::{ExpectedReview, shown_kind};

const GROUP: &str = "apiextensions.k8s.io";

/// Review for a conversion webhook.
#[derive(Clone, Debug)]
pub(crate) struct Review {
    /// Version of ConversionReview.
    pub(crate) version: &'static str,
    /// UID that the answer must repeat.
    pub(crate) uid: String,
    /// apiVersion to convert to.
    pub(crate) wanted: String,
    /// Objects in other versions.
    pub(crate) objects: Vec<Value>,
}

/// Returns the version of ConversionReview that both sides support; the webhook lists its versions in order of preference.
pub(crate) fn version(known: &Value) -> Option<&'static str> {
    let known = known.as_array()?;
    known.iter().find_map(|version| ["v1", "v1beta1"].into_iter().find(|ours| *version == **ours))
}

impl Review {
    /// Returns the document to send.
    pub(crate) fn body(&self) -> Value {
        json!({
            "kind": "ConversionReview", "apiVersion": format!("{GROUP}/{}", self.version),
            "request": {"uid": self.uid, "desiredAPIVersion": self.wanted, "objects": self.objects},
        })
    }

    /// Returns the converted objects of an answer, in the order of the request. An error describes what the webhook did wrong, as a
    /// continuation of `conversion webhook for … `.
    pub(crate) fn converted(&self, mut answer: Value) -> Result<Vec<Value>, String> {
        self.check_envelope(&answer).map_err(|why| format!("failed: {why}"))?;
        let converted = match answer["response"]["convertedObjects"].take() {
            Value::Array(objects) => objects,
            _ => Vec::new(),
        };
        if converted.len() != self.objects.len() {
            return Err(format!("returned {} objects, expected {}", converted.len(), self.objects.len()));
        }
        let pairs = self.objects.iter().zip(converted).enumerate();
        pairs.map(|(index, (original, converted))| self.accepted(index, original, converted)).collect()
    }

    fn check_envelope(&self, answer: &Value) -> Result<(), String> {
        let expected = ExpectedReview { kind: "ConversionReview", group: GROUP, version: self.version };
        expected.check(answer, &reviews::conversion_review(self.version))?;
        let response = &answer["response"];
        if self.version == "v1" {
            let wanted = format!("{GROUP}/v1, Kind=ConversionReview");
            let given = shown_kind(answer);
            if given != wanted {
                return Err(format!("expected webhook response of {wanted}, got {given}"));
            }
        }
        if !response.is_object() {
            return Err("no response provided".to_owned());
        }
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let uid = text(&response["uid"]);
        if self.version == "v1" && uid != self.uid {
            return Err(format!("expected response.uid={:?}, got {uid:?}", self.uid));
        }
        let (status, message) = (text(&response["result"]["status"]), text(&response["result"]["message"]));
        match (status.as_str(), message.is_empty()) {
            ("Success", _) => Ok(()),
            (_, false) => Err(message),
            (other, true) => Err(format!("response.result.status was '{other}', not 'Success'")),
        }
    }

    /// Returns one converted object with the metadata of the original, except labels and annotations.
    fn accepted(&self, index: usize, original: &Value, mut converted: Value) -> Result<Value, String> {
        let (at, metadata_at) = match self.objects.len() {
            1 => (String::new(), String::new()),
            _ => (format!(" at index {index}"), format!(" in object at index {index}")),
        };
        let object = if at.is_empty() { "object" } else { "converted object" };
        check_type(original, &converted, &self.wanted).map_err(|why| {
            let at = if at.is_empty() { " at index 0" } else { &at };
            format!("returned invalid {object}{at}: {why}")
        })?;
        check_identity(original, &converted)
            .map_err(|why| format!("returned invalid {object}{at}: {why}"))?;
        let metadata = restored_metadata(original, &converted)
            .map_err(|why| format!("returned invalid metadata{metadata_at}: {why}"))?;
        if let Some(object) = converted.as_object_mut() {
            object.insert("metadata".into(), metadata.into());
        }
        Ok(converted)
    }
}

fn check_type(original: &Value, converted: &Value, wanted: &str) -> Result<(), String> {
    let text = |object: &Value, key: &str| object[key].as_str().unwrap_or_default().to_owned();
    let version = text(converted, "apiVersion");
    if version != wanted {
        return Err(format!("invalid groupVersion (expected {wanted}, received {version})"));
    }
    let (expected, received) = (text(original, "kind"), text(converted, "kind"));
    if expected != received {
        return Err(format!("invalid kind (expected {expected}, received {received})"));
    }
    Ok(())
}

fn check_identity(original: &Value, converted: &Value) -> Result<(), String> {
    for (field, shown) in [("name", "name"), ("namespace", "namespace"), ("uid", "UID")] {
        let text = |object: &Value| object["metadata"][field].as_str().unwrap_or_default().to_owned();
        let (expected, actual) = (text(original), text(converted));
        if expected != actual {
            return Err(format!("must have the same {shown}: {expected} != {actual}"));
        }
    }
    Ok(())
}

fn restored_metadata(original: &Value, converted: &Value) -> Result<Map<String, Value>, String> {
    let given = match converted.get("metadata") {
        None => return Err("missing metadata in converted object".to_owned()),
        Some(Value::Object(given)) => given,
        Some(other) => {
            return Err(format!("invalid metadata of type {} in converted object", go_type(other)));
        }
    };
    let mut metadata = original["metadata"].as_object().cloned().unwrap_or_default();
    for field in ["labels", "annotations"] {
        match given.get(field) {
            None | Some(Value::Null) => {
                metadata.remove(field);
            }
            Some(Value::Object(texts)) => {
                if let Some((key, value)) = texts.iter().find(|(_, value)| !value.is_string()) {
                    let kind = go_type(value);
                    return Err(format!(
                        "metadata.{field}[{key}] must be a string, but is {kind} in converted object"
                    ));
                }
                metadata.insert(field.into(), Value::Object(texts.clone()));
            }
            Some(other) => {
                return Err(format!(
                    "invalid metadata.{field} of type {} in converted object",
                    go_type(other)
                ));
            }
        }
    }
    Ok(metadata)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test may panic")]
    use super::*;

    fn thing(name: &str, version: &str) -> Value {
        json!({
            "apiVersion": format!("example.com/{version}"), "kind": "Thing",
            "metadata": {"name": name, "uid": "u", "generation": 2, "labels": {"a": "b"}},
        })
    }

    fn review(objects: Vec<Value>) -> Review {
        Review { version: "v1", uid: "7".into(), wanted: "example.com/v2".into(), objects }
    }

    /// Returns an answer with these objects, after a change.
    // The tests write `json!` at the call.
    #[allow(clippy::needless_pass_by_value)]
    fn answer(objects: Value, change: impl FnOnce(&mut Value)) -> Value {
        let mut answer = json!({
            "kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1",
            "response": {"uid": "7", "result": {"status": "Success"}, "convertedObjects": objects},
        });
        change(&mut answer);
        answer
    }

    #[test]
    fn metadata_is_kept_but_for_labels_and_annotations() {
        let mut converted = thing("a", "v2");
        converted["metadata"] = json!({
            "name": "a", "uid": "u", "generation": 9, "finalizers": ["x"], "annotations": {"k": "v"},
        });
        converted["spec"] = 1.into();
        let accepted = review(vec![thing("a", "v1")]).converted(answer(json!([converted]), |_| {})).unwrap();
        let metadata = json!({"name": "a", "uid": "u", "generation": 2, "annotations": {"k": "v"}});
        let wanted =
            json!({"apiVersion": "example.com/v2", "kind": "Thing", "metadata": metadata, "spec": 1});
        assert_eq!(accepted, [wanted]);
    }

    #[test]
    fn answers_are_refused_in_the_words_of_upstream() {
        let one = |change: fn(&mut Value)| {
            let mut converted = thing("a", "v2");
            change(&mut converted);
            review(vec![thing("a", "v1")]).converted(answer(json!([converted]), |_| {})).unwrap_err()
        };
        let whole = |change: fn(&mut Value)| {
            let converted = json!([thing("a", "v2")]);
            review(vec![thing("a", "v1")]).converted(answer(converted, change)).unwrap_err()
        };
        let metadata = "returned invalid metadata: ";
        let table = [
            (whole(|a| a["kind"] = "X".into()), "failed: no kind \"X\" is registered for version \
                \"apiextensions.k8s.io/v1\" in scheme \"k8s.io/apiserver/pkg/util/webhook/client.go:71\"".to_owned()),
            (whole(|a| a["kind"] = "".into()), "failed: expected webhook response of apiextensions.k8s.io/v1, \
                Kind=ConversionReview, got apiextensions.k8s.io/v1, Kind=".to_owned()),
            (whole(|a| a["response"]["uid"] = 8.into()), "failed: json: cannot unmarshal number into Go struct field \
                ConversionResponse.response.uid of type types.UID".to_owned()),
            (whole(|a| a["response"]["convertedObjects"] = "x".into()), "failed: json: cannot unmarshal string into Go \
                struct field ConversionResponse.response.convertedObjects of type []runtime.RawExtension".to_owned()),
            (whole(|a| a["response"] = Value::Null), "failed: no response provided".to_owned()),
            (whole(|a| a["response"]["uid"] = "8".into()), "failed: expected response.uid=\"7\", got \"8\"".to_owned()),
            (whole(|a| a["response"]["result"] = json!({"status": "Failure", "message": "no"})), "failed: no".to_owned()),
            (
                whole(|a| a["response"]["result"] = json!({"status": "Failure"})),
                "failed: response.result.status was 'Failure', not 'Success'".to_owned(),
            ),
            (whole(|a| a["response"]["convertedObjects"] = json!([])), "returned 0 objects, expected 1".to_owned()),
            (
                one(|o| o["apiVersion"] = "example.com/v1".into()),
                "returned invalid object at index 0: invalid groupVersion (expected example.com/v2, received \
                 example.com/v1)".to_owned(),
            ),
            (
                one(|o| o["kind"] = "Other".into()),
                "returned invalid object at index 0: invalid kind (expected Thing, received Other)".to_owned(),
            ),
            (one(|o| o["metadata"]["name"] = "b".into()), "returned invalid object: must have the same name: a != b".to_owned()),
            (one(|o| o["metadata"]["uid"] = "w".into()), "returned invalid object: must have the same UID: u != w".to_owned()),
            (
                one(|o| o["metadata"]["labels"] = json!([])),
                format!("{metadata}invalid metadata.labels of type []interface {{}} in converted object"),
            ),
            (
                one(|o| o["metadata"]["labels"] = json!({"a": 1})),
                format!("{metadata}metadata.labels[a] must be a string, but is int64 in converted object"),
            ),
        ];
        for (actual, wanted) in table {
            assert_eq!(actual, wanted);
        }
        let many = review(vec![thing("a", "v1"), thing("b", "v1")]);
        let wrong = answer(json!([thing("a", "v2"), thing("c", "v2")]), |_| {});
        assert_eq!(
            many.converted(wrong).unwrap_err(),
            "returned invalid converted object at index 1: must have the same name: b != c"
        );
    }

    #[test]
    fn the_webhook_chooses_the_version_of_reviews() {
        for (known, wanted) in [
            (json!(["v3", "v1beta1", "v1"]), Some("v1beta1")),
            (json!(["v1"]), Some("v1")),
            (json!(["v9"]), None),
        ] {
            assert_eq!(version(&known), wanted);
        }
    }
}
