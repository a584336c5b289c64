//! A refusal as a gRPC status, with the reason and the time after which to try again.

use tonic::Status;
use tonic_types::{ErrorDetails, StatusExt as _};

use crate::refusal::Refusal;

/// Domain of the reasons of errors, for `google.rpc.ErrorInfo`.
const DOMAIN: &str = "lumpscope";

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        let info = refusal.metadata();
        let mut details = ErrorDetails::with_error_info(refusal.reason(), DOMAIN, info);
        if let Some(time) = refusal.retry_after() {
            details.set_retry_info(Some(time));
        }
        Self::with_error_details(refusal.code(), refusal.to_string(), details)
    }
}

#[cfg(test)]
mod tests;
