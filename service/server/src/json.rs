//! Protocol messages as JSON, for `--json` and for the page.

use serde::Serialize;
use serde_json::Value;

/// A message as JSON, keys sorted.
pub fn to_json(message: &impl Serialize) -> Value {
    // Only maps with non-string keys fail, and no message has one.
    serde_json::to_value(message).unwrap_or_default()
}

/// As [`to_json`], with one more key.
pub fn to_json_with(key: &str, value: impl Into<Value>, message: &impl Serialize) -> Value {
    let mut shown = to_json(message);
    shown[key] = value.into();
    shown
}
