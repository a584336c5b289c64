//! `USER[:GROUP]`, looked up in the system's databases.

use std::ffi::CString;

use nix::errno::Errno;
use nix::unistd::{Gid, Group, Uid, User, getgrouplist};

use super::error::PrivilegeError;
use super::threads::Identity;

/// Ids of `USER[:GROUP]`, with the supplementary groups that the database gives the user.
pub(super) fn find(given: &str) -> Result<Identity, PrivilegeError> {
    let (user, group) = match given.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (given, None),
    };
    let gid = group.map(|group| group_id(given, group)).transpose()?;
    let found = match user.parse() {
        Ok(uid) => User::from_uid(Uid::from_raw(uid)),
        Err(_) => User::from_name(user),
    };
    if let Some(found) = known(user, found)? {
        let gid = gid.unwrap_or(found.gid.as_raw());
        return Ok(Identity {
            uid: found.uid.as_raw(),
            gid,
            groups: groups_of(found.name, gid)?,
        });
    }
    // A number that nobody has is a user too, without groups of its own.
    let uid = user.parse().map_err(|_| PrivilegeError::NoUser {
        given: given.to_owned(),
        name: user.to_owned(),
    })?;
    let gid = gid.ok_or_else(|| PrivilegeError::NoGroup {
        given: given.to_owned(),
        name: String::new(),
    })?;
    Ok(Identity {
        uid,
        gid,
        groups: vec![gid],
    })
}

fn group_id(given: &str, group: &str) -> Result<u32, PrivilegeError> {
    let found = known(group, Group::from_name(group))?;
    found
        .map(|found| found.gid.as_raw())
        .or_else(|| group.parse().ok())
        .ok_or_else(|| PrivilegeError::NoGroup {
            given: given.to_owned(),
            name: group.to_owned(),
        })
}

/// An entry of a database; `None`: it has none.
fn known<T>(name: &str, found: Result<Option<T>, Errno>) -> Result<Option<T>, PrivilegeError> {
    match found {
        // The ways in which databases say that there is nothing.
        Err(Errno::ENOENT | Errno::ESRCH | Errno::EBADF | Errno::EPERM) => Ok(None),
        found => found.map_err(|error| PrivilegeError::Database {
            name: name.to_owned(),
            source: error.into(),
        }),
    }
}

/// The groups of a user, `gid` among them.
fn groups_of(user: String, gid: u32) -> Result<Vec<u32>, PrivilegeError> {
    // A name of the database has no zero byte.
    let name = CString::new(user.as_str()).unwrap_or_default();
    let groups = getgrouplist(&name, Gid::from_raw(gid));
    let groups = groups.map_err(|error| PrivilegeError::Database {
        name: user,
        source: error.into(),
    })?;
    Ok(groups.into_iter().map(Gid::as_raw).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_and_groups_are_found_by_name_and_number() {
        let root = find("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(find("0:0").unwrap().uid, 0);
        let stranger = find("4000000:4000001").unwrap();
        assert_eq!(stranger.uid, 4_000_000);
        assert_eq!(stranger.groups, [4_000_001]);
        let mixed = find("root:4000001").unwrap();
        assert_eq!((mixed.uid, mixed.gid), (0, 4_000_001));
    }

    #[test]
    fn what_is_not_there_is_named() {
        for (given, words) in [
            ("no-such-user", ["no-such-user", "no user"]),
            ("root:no-such-group", ["no-such-group", "no group"]),
            ("4000000", ["4000000", "needs a group"]),
            ("", ["\"\"", "no user"]),
        ] {
            let message = find(given).unwrap_err().to_string();
            for word in words {
                assert!(message.contains(word), "{word:?} in {message:?}");
            }
        }
        assert!(find("a\0b").is_err());
    }
}
