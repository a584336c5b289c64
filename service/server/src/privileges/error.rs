//! Why privileges could not be given up.

use std::io;

/// Why privileges could not be given up. The service does not start then: it would serve with
/// rights that it says it has not.
#[derive(Debug, thiserror::Error)]
#[expect(missing_docs, reason = "the messages say what the fields are")]
pub enum PrivilegeError {
    /// There is no such user.
    #[error(
        "user = {given:?}: there is no user {name:?}; write USER or USER:GROUP as in /etc/passwd"
    )]
    NoUser {
        /// The value as given.
        given: String,
        /// The part of it that is not known.
        name: String,
    },
    /// There is no such group.
    #[error(
        "user = {given:?}: there is no group {name:?}; write USER:GROUP as in /etc/group (a number \
         that is no known user needs a group)"
    )]
    NoGroup {
        /// The value as given.
        given: String,
        /// The part of it that is not known.
        name: String,
    },
    /// The user database cannot be read.
    #[error("cannot look up {name:?} in the user database: {source}")]
    Database {
        /// The name that was looked up.
        name: String,
        source: io::Error,
    },
    /// This user may not become another one.
    #[error(
        "user = {given:?} cannot be changed to by user {uid}: start as root, or leave the setting out"
    )]
    NotAllowed {
        /// The value as given.
        given: String,
        uid: u32,
    },
    /// /proc does not say what the threads may do.
    #[error("cannot see what this process may do: {0}; mount /proc, or add --keep-privileges")]
    Proc(io::Error),
    /// Threads cannot be signalled.
    #[error("cannot signal this process's own threads: {0}; add --keep-privileges")]
    Signal(io::Error),
    /// A thread does not answer.
    #[error(
        "thread {thread} does not give up its privileges: it has not answered for 30 seconds; is \
         a disk stuck? --keep-privileges starts without giving them up"
    )]
    Deaf { thread: String },
    /// A thread was refused a call.
    #[error(
        "thread {thread} still has privileges that it should not have; {call} was refused: {source}; \
         --keep-privileges starts without giving them up"
    )]
    Refused {
        thread: String,
        call: &'static str,
        source: io::Error,
    },
    /// System calls cannot be forbidden.
    #[error("cannot forbid system calls that are not needed: {0}")]
    Filter(String),
}
