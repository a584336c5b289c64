//! The UNIX socket: made so that nobody can connect before its permissions are those configured,
//! and taken away at the end.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _, chown,
};
use std::os::unix::net::{UnixListener as StdListener, UnixStream};
use std::path::{Path, PathBuf};

use lumpscope_engine::guard::folder_of;
use tokio::net::UnixListener;
use tracing::{info, warn};

use crate::error::ServerError;

/// The file of a socket that is listened on; removed when this is dropped, if it is still the same.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|meta| (meta.dev(), meta.ino()) == (self.device, self.inode));
        if !ours {
            return;
        }
        if let Err(error) = fs::remove_file(&self.path) {
            // The next start finds it dead and replaces it.
            info!(path = %self.path.display(), %error, "the UNIX socket stays behind");
        }
    }
}

/// Listens on `path` with the permissions `mode`; the socket belongs to the user and group `ids`,
/// `None`: to who we are. What a dead service has left there is replaced.
///
/// # Errors
/// A socket on which somebody listens, a file that is no socket, a folder that cannot be written.
pub(crate) fn listen(
    path: &Path,
    mode: u32,
    ids: Option<(u32, u32)>,
) -> Result<(UnixListener, SocketFile), ServerError> {
    check_place(path)?;
    let failed = |source| ServerError::UnixSocket {
        path: path.to_owned(),
        why: format!("{source}"),
    };
    let (listener, meta) = make(path, mode, ids).map_err(failed)?;
    let file = SocketFile {
        path: path.to_owned(),
        device: meta.dev(),
        inode: meta.ino(),
    };
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    Ok((listener, file))
}

/// Refuses to take the place of anything but a dead socket.
fn check_place(path: &Path) -> Result<(), ServerError> {
    let refused = |why: &str| {
        Err(ServerError::UnixSocket {
            path: path.to_owned(),
            why: why.to_owned(),
        })
    };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return refused(&error.to_string()),
        Ok(meta) if !meta.file_type().is_socket() => {
            return refused(
                "there is a file that is no socket: move it away or choose another path",
            );
        }
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(_) => refused("another process is listening there: stop it or choose another path"),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            warn!(path = %path.display(), "replacing the UNIX socket that a service has left behind");
            Ok(())
        }
        // Its backlog is full, or we may not ask: it may well live.
        Err(error) => refused(&format!("there is a socket that may be in use: {error}")),
    }
}

/// Binds in a folder that nobody else can enter, sets the permissions there, and moves the socket
/// to its place, which replaces a dead one without a moment in which there is none.
fn make(
    path: &Path,
    mode: u32,
    ids: Option<(u32, u32)>,
) -> io::Result<(StdListener, fs::Metadata)> {
    let parent = folder_of(path);
    // Short: the kernel takes 107 bytes of path.
    let private = parent.join(format!(".l{}", std::process::id()));
    match fs::remove_dir_all(&private) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        // Left by a process with our number that was killed here.
        _ => {}
    }
    fs::DirBuilder::new().mode(0o700).create(&private)?;
    let made = bind_inside(&private, path, mode, ids);
    fs::remove_dir_all(&private)?;
    made
}

fn bind_inside(
    private: &Path,
    path: &Path,
    mode: u32,
    ids: Option<(u32, u32)>,
) -> io::Result<(StdListener, fs::Metadata)> {
    let inside = private.join("s");
    let listener = StdListener::bind(&inside)?;
    listener.set_nonblocking(true)?;
    fs::set_permissions(&inside, Permissions::from_mode(mode))?;
    if let Some((user, group)) = ids {
        chown(&inside, Some(user), Some(group))?;
    }
    let meta = fs::symlink_metadata(&inside)?;
    fs::rename(&inside, path)?;
    Ok((listener, meta))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_a_dead_socket_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        let (listener, file) = listen(&path, 0o640, None).unwrap();
        let mode = fs::symlink_metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let error = listen(&path, 0o600, None).unwrap_err().to_string();
        assert!(error.contains("another process is listening"), "{error}");
        // As a service that was killed leaves it: the file without anybody who listens.
        drop(listener);
        let (_listener, _second) = listen(&path, 0o600, None).unwrap();
        // The end of the first takes nothing away from the second.
        drop(file);
        UnixStream::connect(&path).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[tokio::test]
    async fn a_file_that_is_no_socket_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("data");
        fs::write(&path, "precious").unwrap();
        let error = listen(&path, 0o600, None).unwrap_err().to_string();
        assert!(error.contains("no socket"), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"precious");
        let nowhere = folder.path().join("none/s");
        assert!(listen(&nowhere, 0o600, None).is_err());
    }

    #[tokio::test]
    async fn it_is_taken_away_at_the_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.sock");
        drop(listen(&path, 0o600, None).unwrap());
        assert!(!path.exists());
    }
}
