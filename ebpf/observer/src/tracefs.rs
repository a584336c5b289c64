//! Field offsets of classic tracepoints, read from tracefs.

use std::path::{Path, PathBuf};

use thiserror::Error;

/// Why tracefs cannot answer.
#[derive(Debug, Error)]
pub(crate) enum TracefsError {
    /// Neither of the usual places has it.
    #[error(
        "tracefs is not mounted, or may not be read: mount -t tracefs tracefs /sys/kernel/tracing"
    )]
    NotThere,
    /// This kernel lacks the tracepoint.
    #[error("cannot read {path}: {source}")]
    Unreadable {
        path: PathBuf,
        source: std::io::Error,
    },
    /// The format has no such field.
    #[error("tracepoint {event} has no field {field} on this kernel")]
    NoField { event: String, field: String },
}

/// The mounted tracefs.
pub(crate) fn find() -> Result<PathBuf, TracefsError> {
    ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"]
        .iter()
        .map(PathBuf::from)
        .find(|root| root.join("events/block").is_dir())
        .ok_or(TracefsError::NotThere)
}

/// The text that describes a block tracepoint's record.
pub(crate) fn format_of(root: &Path, event: &str) -> Result<String, TracefsError> {
    let path = root.join("events/block").join(event).join("format");
    std::fs::read_to_string(&path).map_err(|source| TracefsError::Unreadable { path, source })
}

/// Offset of a field in a record, from the text of [`format_of`].
pub(crate) fn field_offset(format: &str, event: &str, field: &str) -> Result<u32, TracefsError> {
    let found = format.lines().find_map(|line| {
        let mut parts = line.trim().split(';');
        let declaration = parts.next()?.strip_prefix("field:")?;
        let name = declaration.split_whitespace().last()?;
        let name = name.split('[').next()?;
        let offset = parts.next()?.trim().strip_prefix("offset:")?;
        (name == field).then(|| offset.parse().ok()).flatten()
    });
    found.ok_or_else(|| TracefsError::NoField {
        event: event.to_owned(),
        field: field.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: block_rq_issue\nID: 1\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:dev_t dev;\toffset:8;\tsize:4;\tsigned:0;\n\
        \tfield:char rwbs[10];\toffset:34;\tsize:10;\tsigned:0;\n";

    #[test]
    fn reads_scalars_and_arrays() {
        assert_eq!(field_offset(FORMAT, "e", "dev").expect("there"), 8);
        assert_eq!(field_offset(FORMAT, "e", "rwbs").expect("there"), 34);
    }

    #[test]
    fn says_which_field_is_missing() {
        let error = field_offset(FORMAT, "block_rq_issue", "ioprio").expect_err("not there");
        let words = "block_rq_issue has no field ioprio";
        assert!(error.to_string().contains(words), "{error}");
    }
}
