//! `USER[:GROUP]`, looked up in the system's databases.

#![expect(unsafe_code, reason = "the user database is the C library's")]

use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::ptr;

use super::error::PrivilegeError;
use super::threads::Identity;

/// Texts of one entry; more are refused by growing.
const FIRST_BUFFER: usize = 4096;
const LARGEST_BUFFER: usize = 1 << 20;
/// The kernel allows no more groups.
const MOST_GROUPS: usize = 65_536;

/// A user of the database.
struct User {
    name: CString,
    uid: u32,
    gid: u32,
}

/// Ids of `USER[:GROUP]`, with the supplementary groups that the database gives the user.
pub(super) fn find(given: &str) -> Result<Identity, PrivilegeError> {
    let (user, group) = match given.split_once(':') {
        Some((user, group)) => (user, Some(group)),
        None => (given, None),
    };
    let no_user = || PrivilegeError::NoUser {
        given: given.to_owned(),
        name: user.to_owned(),
    };
    let gid = group.map(|group| group_id(given, group)).transpose()?;
    if let Some(found) = lookup_user(user)? {
        let gid = gid.unwrap_or(found.gid);
        return Ok(Identity {
            uid: found.uid,
            gid,
            groups: groups_of(&found.name, gid),
        });
    }
    // A number that nobody has is a user too, without groups of its own.
    let uid = user.parse().map_err(|_| no_user())?;
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

fn lookup_user(user: &str) -> Result<Option<User>, PrivilegeError> {
    let name = c_string(user)?;
    let number: Option<u32> = user.parse().ok();
    lookup(user, |buffer| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = ptr::null_mut();
        let (texts, len) = (buffer.as_mut_ptr().cast(), buffer.len());
        let code = match number {
            // SAFETY: the entry and its texts are written to memory of the sizes given.
            Some(uid) => unsafe {
                libc::getpwuid_r(uid, entry.as_mut_ptr(), texts, len, &raw mut found)
            },
            // SAFETY: as above; the name ends with a zero byte.
            None => unsafe {
                libc::getpwnam_r(
                    name.as_ptr(),
                    entry.as_mut_ptr(),
                    texts,
                    len,
                    &raw mut found,
                )
            },
        };
        // SAFETY: null, or the entry, which was written then.
        let entry = unsafe { found.as_ref() };
        let user = entry.map(|entry| User {
            // SAFETY: a text in `buffer` that ends with a zero byte.
            name: unsafe { std::ffi::CStr::from_ptr(entry.pw_name) }.to_owned(),
            uid: entry.pw_uid,
            gid: entry.pw_gid,
        });
        (code, user)
    })
}

fn group_id(given: &str, group: &str) -> Result<u32, PrivilegeError> {
    let name = c_string(group)?;
    let found = lookup(group, |buffer| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = ptr::null_mut();
        // SAFETY: the entry and its texts are written to memory of the sizes given.
        let code = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                &raw mut found,
            )
        };
        // SAFETY: null, or the entry, which was written then.
        (code, unsafe { found.as_ref() }.map(|entry| entry.gr_gid))
    })?;
    found
        .or_else(|| group.parse().ok())
        .ok_or_else(|| PrivilegeError::NoGroup {
            given: given.to_owned(),
            name: group.to_owned(),
        })
}

/// Asks with a buffer that grows until the entry fits.
fn lookup<T>(
    name: &str,
    ask: impl Fn(&mut Vec<u8>) -> (i32, Option<T>),
) -> Result<Option<T>, PrivilegeError> {
    let mut size = FIRST_BUFFER;
    loop {
        match ask(&mut vec![0; size]) {
            (0, found) => return Ok(found),
            (libc::ERANGE, _) if size < LARGEST_BUFFER => size *= 2,
            // The ways in which databases say that there is nothing.
            (libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM, _) => return Ok(None),
            (code, _) => {
                return Err(PrivilegeError::Database {
                    name: name.to_owned(),
                    source: io::Error::from_raw_os_error(code),
                });
            }
        }
    }
}

/// The groups of a user, `gid` among them.
fn groups_of(user: &std::ffi::CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0; 64];
    loop {
        let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
        // SAFETY: at most `count` groups are written, and there is room for them.
        let code =
            unsafe { libc::getgrouplist(user.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
        let count = usize::try_from(count).unwrap_or(0);
        if code >= 0 || groups.len() >= MOST_GROUPS {
            groups.truncate(count);
            return groups;
        }
        groups.resize(count.max(groups.len() * 2).min(MOST_GROUPS), 0);
    }
}

fn c_string(text: &str) -> Result<CString, PrivilegeError> {
    CString::new(text).map_err(|error| PrivilegeError::Database {
        name: text.to_owned(),
        source: error.into(),
    })
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
