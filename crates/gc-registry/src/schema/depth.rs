//! The limit of all recursion over documents.

use serde_json::Value;

/// Maximum nesting of documents. Bodies are limited to 128 levels when they are parsed; patches can build slightly deeper documents
/// from parts, and all recursive code relies on this limit.
pub const MAX_DEPTH: usize = 256;

/// Returns the nesting of a document: 0 for scalars. Gives up at the limit, which bounds its own recursion, and returns `None`.
#[must_use]
pub fn depth(value: &Value) -> Option<usize> {
    fn walk(value: &Value, left: usize) -> Option<usize> {
        let deepest = match value {
            Value::Array(items) => {
                let left = left.checked_sub(1)?;
                items.iter().try_fold(0, |deepest, item| Some(walk(item, left)?.max(deepest)))?
            }
            Value::Object(fields) => {
                let left = left.checked_sub(1)?;
                fields.values().try_fold(0, |deepest, item| Some(walk(item, left)?.max(deepest)))?
            }
            _ => return Some(0),
        };
        Some(deepest + 1)
    }
    walk(value, MAX_DEPTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn depth_counts_levels_up_to_the_bound() {
        let nested = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
        assert_eq!(depth(&json!("x")), Some(0));
        assert_eq!(depth(&json!({})), Some(1));
        assert_eq!(depth(&json!({"a": [1, {"b": {}}], "c": 1})), Some(4));
        assert_eq!(depth(&nested(MAX_DEPTH)), Some(MAX_DEPTH));
        assert_eq!(depth(&nested(MAX_DEPTH + 1)), None);
    }
}
