//! The way to a pool of Ceph, through its own library.
//!
//! librados is looked for when it is needed: nothing of Ceph is linked. Its calls wait, so each is made where
//! waiting harms nobody, as its own tools do with a thread a request.
#![expect(unsafe_code, reason = "a library of C")]

use std::collections::BTreeSet;
use std::ffi::{CString, c_char, c_int, c_void};
use std::io;
use std::path::Path;
use std::ptr::null_mut;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use libloading::Library;

use super::files::blocking;
use super::memory::Home;
use super::{Answer, Failure, Placement, StoreClient};

/// The library, as Debian's librados2 installs it.
const LIBRARY: &str = "librados.so.2";
/// Largest object that is read, in bytes.
const MAX_OBJECT: usize = 16 << 20;

/// Handle of a cluster or of a pool.
type Handle = *mut c_void;
/// A function that ends a handle.
type End = unsafe extern "C" fn(Handle);

/// An open pool; clones share its connection, as users of librados do.
#[derive(Clone)]
pub struct RadosPool(Arc<Pool>);

/// The functions, as `rados/librados.h` declares them, and what they work on.
struct Pool {
    write_full: unsafe extern "C" fn(Handle, *const c_char, *const c_char, usize) -> c_int,
    read: unsafe extern "C" fn(Handle, *const c_char, *mut c_char, usize, u64) -> c_int,
    remove: unsafe extern "C" fn(Handle, *const c_char) -> c_int,
    pool: OwnedHandle,
    _cluster: OwnedHandle,
    /// Objects that were put: the pool is ours alone.
    ids: Mutex<BTreeSet<u128>>,
    // Unloaded last.
    _library: Library,
}

/// A handle that is ended when dropped.
struct OwnedHandle(Handle, End);

// SAFETY: librados allows calls on one handle from every thread.
unsafe impl Send for OwnedHandle {}
// SAFETY: librados allows several calls on one handle at a time.
unsafe impl Sync for OwnedHandle {}

impl Drop for OwnedHandle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and this function ends its kind.
        unsafe { (self.1)(self.0) }
    }
}

/// A function of the library.
fn function<T: Copy>(library: &Library, name: &str) -> Result<T, String> {
    // SAFETY: the caller's type is that of the declaration in `rados/librados.h`.
    let found = unsafe { library.get::<T>(name) };
    found.map(|found| *found).map_err(|error| error.to_string())
}

/// Negative results are errors of the system.
fn checked(result: c_int) -> Result<usize, io::Error> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.saturating_neg()))
}

fn word(text: &str) -> Result<CString, String> {
    CString::new(text).map_err(|error| format!("{text:?}: {error}"))
}

impl RadosPool {
    /// Opens a pool of the cluster that this configuration names, and waits until it takes changes.
    ///
    /// # Errors
    /// The library is not there, or nobody answers.
    pub fn open(configuration: &Path, pool: &str) -> Result<RadosPool, String> {
        type Create = unsafe extern "C" fn(*mut Handle, *const c_char, *const c_char, u64) -> c_int;
        type Named = unsafe extern "C" fn(Handle, *const c_char) -> c_int;
        type Connect = unsafe extern "C" fn(Handle) -> c_int;
        type Open = unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int;
        // SAFETY: what librados does when it is loaded harms nobody.
        let library = unsafe { Library::new(LIBRARY) };
        let library = library.map_err(|error| error.to_string())?;
        let create: Create = function(&library, "rados_create2")?;
        let configure: Named = function(&library, "rados_conf_read_file")?;
        let connect: Connect = function(&library, "rados_connect")?;
        let open: Open = function(&library, "rados_ioctx_create")?;
        let failed = |what: &str, error: io::Error| format!("{what}: {error}");
        let (ceph, user) = (word("ceph")?, word("client.admin")?);
        let (configuration, pool) = (word(&configuration.to_string_lossy())?, word(pool)?);
        let mut handle = null_mut();
        // SAFETY: the strings live as long as the call, and the handle is written.
        let made = unsafe { create(&raw mut handle, ceph.as_ptr(), user.as_ptr(), 0) };
        checked(made).map_err(|error| failed("rados_create2", error))?;
        let cluster = OwnedHandle(handle, function(&library, "rados_shutdown")?);
        // SAFETY: the handle is open, the string lives as long as the call.
        let read = unsafe { configure(cluster.0, configuration.as_ptr()) };
        checked(read).map_err(|error| failed("rados_conf_read_file", error))?;
        // SAFETY: the handle is open.
        let connected = unsafe { connect(cluster.0) };
        checked(connected).map_err(|error| failed("rados_connect", error))?;
        let mut handle = null_mut();
        // SAFETY: the cluster is open, the string lives as long as the call, and the handle is written.
        let opened = unsafe { open(cluster.0, pool.as_ptr(), &raw mut handle) };
        checked(opened).map_err(|error| failed("rados_ioctx_create", error))?;
        let pool = Pool {
            write_full: function(&library, "rados_write_full")?,
            read: function(&library, "rados_read")?,
            remove: function(&library, "rados_remove")?,
            pool: OwnedHandle(handle, function(&library, "rados_ioctx_destroy")?),
            _cluster: cluster,
            ids: Mutex::default(),
            _library: library,
        };
        let nothing = word("nothing")?;
        // SAFETY: the pool is open; the name lives as long as the call.
        match checked(unsafe { (pool.remove)(pool.pool.0, nothing.as_ptr()) }) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("its pool", error)),
            _ => Ok(RadosPool(Arc::new(pool))),
        }
    }
}

/// One client of the pool.
pub(super) struct RadosClient {
    pool: RadosPool,
    body: Home,
}

impl RadosClient {
    pub(super) fn new(pool: RadosPool) -> RadosClient {
        RadosClient {
            pool,
            body: Home::default(),
        }
    }

    /// Calls the library for an object, and times that.
    async fn ask<T: Send + 'static>(
        &self,
        id: u128,
        call: impl FnOnce(&Pool, *const c_char) -> Result<T, io::Error> + Send + 'static,
    ) -> Result<Answer<T>, Failure> {
        let pool = self.pool.clone();
        blocking(move || {
            let name = word(&format!("{id:032x}")).map_err(Failure::peer)?;
            let begin = Instant::now();
            let value = call(&pool.0, name.as_ptr())?;
            Ok(Answer::since(begin, value))
        })
        .await
    }

    fn ids(&self) -> MutexGuard<'_, BTreeSet<u128>> {
        let ids = self.pool.0.ids.lock();
        ids.unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl StoreClient for RadosClient {
    async fn put(
        &mut self,
        id: u128,
        body: Bytes,
        _placement: Placement,
    ) -> Result<Answer<Option<bool>>, Failure> {
        let put = self.ask(id, move |of, name| {
            // SAFETY: the pool is open; name and bytes live as long as the call.
            let written =
                unsafe { (of.write_full)(of.pool.0, name, body.as_ptr().cast(), body.len()) };
            checked(written).map(|_| None)
        });
        let put = put.await?;
        self.ids().insert(id);
        Ok(put)
    }

    async fn get(&mut self, id: u128) -> Result<Answer<Vec<Bytes>>, Failure> {
        let mut body = self.body.body(MAX_OBJECT);
        self.ask(id, move |of, name| {
            let room = body.room();
            // SAFETY: the pool is open; name and room live as long as the call.
            let read =
                unsafe { (of.read)(of.pool.0, name, room.as_mut_ptr().cast(), room.len(), 0) };
            body.shorten(checked(read)?);
            Ok(vec![Bytes::from_owner(body)])
        })
        .await
    }

    async fn delete(&mut self, id: u128) -> Result<Answer<Option<bool>>, Failure> {
        let deleted = self.ask(id, move |of, name| {
            // SAFETY: the pool is open; the name lives as long as the call.
            checked(unsafe { (of.remove)(of.pool.0, name) }).map(|_| None)
        });
        let deleted = deleted.await?;
        self.ids().remove(&id);
        Ok(deleted)
    }

    async fn list(&mut self) -> Result<Vec<u128>, Failure> {
        Ok(self.ids().iter().copied().collect())
    }
}
