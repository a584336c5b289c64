//! Verification after a run: the store holds every lump that should live, and no other.

use serde::Serialize;

use super::content::content;
use super::perform::{check_bytes, check_length};
use super::{Mismatch, RunError, Target, connect};
use crate::load::target::Failure;
use crate::workload::{Command, CommandStream};

/// Lumps that were verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Verified {
    /// Lumps that live.
    pub lumps: u64,
    /// Bytes of them, each of which was compared.
    pub bytes: u64,
}

/// Reads everything that must live after the commands and compares every byte; insists that
/// nothing else lives.
///
/// # Errors
/// A lump is lost, or wrong, or there is one that must not be, or the store does not answer.
pub async fn verify_survivors(
    stream: &CommandStream,
    target: &Target,
) -> Result<Verified, RunError> {
    let mut client = connect(target).await?;
    let alive = stream.survivors();
    let found = client
        .list()
        .await
        .map_err(|failure| failure.of(LIST.to_owned()))?;
    let expected: Vec<u128> = alive.keys().map(|id| u128::from(*id)).collect();
    if let Some(wrong) = first_difference(&expected, &found) {
        return Err(wrong.of(LIST.to_owned()));
    }
    let mut verified = Verified { lumps: 0, bytes: 0 };
    for (&id, lump) in &alive {
        let failed = |failure: Failure| failure.of(format!("get of lump {id:032x} at the end"));
        let pieces = client.get(id.into()).await.map_err(failed)?.value;
        check_length(&pieces, lump.size)
            .and_then(|()| check_bytes(&pieces, &content(id, lump.version, lump.size)))
            .map_err(|what| failed(what.into()))?;
        verified.lumps += 1;
        verified.bytes += lump.size;
    }
    Ok(verified)
}

const LIST: &str = "list at the end";

/// Both ascending.
fn first_difference(expected: &[u128], found: &[u128]) -> Option<Failure> {
    let at = expected
        .iter()
        .zip(found)
        .take_while(|(expected, found)| expected == found)
        .count();
    let what = match (expected.get(at), found.get(at)) {
        (None, None) => return None,
        (Some(lost), None) => Mismatch::Lost(*lost),
        (None, Some(extra)) => Mismatch::Extra(*extra),
        (Some(lost), Some(extra)) if lost < extra => Mismatch::Lost(*lost),
        (Some(_), Some(extra)) => Mismatch::Extra(*extra),
    };
    Some(Failure::Wrong(what))
}

/// Deletes everything that the commands may have put, however far they came.
///
/// # Errors
/// The store does not answer.
pub async fn delete_all(stream: &CommandStream, target: &Target) -> Result<(), RunError> {
    let mut client = connect(target).await?;
    let highest = stream.commands.iter().map(|command| match command {
        Command::Put { id, .. } | Command::Embed { id, .. } => *id,
        Command::Get { .. } | Command::Delete { .. } | Command::DeleteRange { .. } => 0,
    });
    let end = highest.max().unwrap_or(0).saturating_add(1);
    let deleted = client.delete_range(1, end.into()).await;
    deleted
        .map(|_| ())
        .map_err(|failure| failure.of("delete of what was put".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_and_what_is_too_much_is_told_apart() {
        let difference = |expected: &[u128], found: &[u128]| {
            first_difference(expected, found).map(|failure| match failure {
                Failure::Wrong(what) => what,
                Failure::Refused(refusal) => panic!("{refusal}"),
            })
        };
        assert_eq!(difference(&[1, 2], &[1, 2]), None);
        assert_eq!(difference(&[1, 2], &[1]), Some(Mismatch::Lost(2)));
        assert_eq!(difference(&[1, 2], &[2]), Some(Mismatch::Lost(1)));
        assert_eq!(difference(&[2], &[1, 2]), Some(Mismatch::Extra(1)));
        assert_eq!(difference(&[], &[9]), Some(Mismatch::Extra(9)));
    }
}
