//! The log on stderr.

use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::config::LogFormat;
use crate::error::ServerError;

/// Starts logging for the whole process. Does nothing when somebody has started it before.
///
/// # Errors
/// [`ServerError::LogFilter`].
pub fn start(format: LogFormat, filter: &str) -> Result<(), ServerError> {
    let parsed = EnvFilter::try_new(filter).map_err(|error| ServerError::LogFilter {
        filter: filter.to_owned(),
        why: error.to_string(),
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(parsed)
        .with_writer(std::io::stderr);
    // A log that is already there is the caller's (a test's), and stays.
    let _ = match format {
        LogFormat::Text => builder.with_ansi(false).finish().try_init(),
        LogFormat::Json => builder.json().finish().try_init(),
    };
    Ok(())
}
