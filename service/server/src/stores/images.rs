//! The images that a service has open: each once, and each under its own name.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use lumpscope_engine::{Admission, ImageIdentity};
use uuid::Uuid;

use crate::config::StoreSpec;

/// UUIDs of the images that are open, with the names of their stores. Every clone is the same.
#[derive(Clone, Default)]
pub(super) struct Images(Arc<Mutex<Vec<(Uuid, String)>>>);

impl Images {
    /// Admits the image of one store, unless it is another one's.
    pub(super) fn admission(&self, spec: &StoreSpec) -> Admission {
        let (images, spec) = (self.clone(), spec.clone());
        Arc::new(move |image| images.admit(&spec, image))
    }

    fn admit(&self, spec: &StoreSpec, image: &ImageIdentity) -> Result<(), String> {
        let StoreSpec { name, path, uuid } = spec;
        let (path, found) = (path.display(), image.uuid);
        if let Some(wanted) = uuid.filter(|wanted| *wanted != found) {
            return Err(format!("its image is {found}, and {wanted} is wanted"));
        }
        if let Some(other) = image.name.as_ref().filter(|other| *other != name) {
            return Err(format!(
                "its image {found} is store {other:?}, not {name:?}: if the disks have got each \
                 other's paths, name them by UUID ({name}=uuid:UUID) or below /dev/disk/by-id; if \
                 this store shall have another name: lumpscope rename {path} {name}"
            ));
        }
        let mut open = self.lock();
        if let Some((_, other)) = open.iter().find(|(uuid, _)| *uuid == found) {
            return Err(format!(
                "its image {found} is open already, as store {other:?}: they are two paths of one \
                 disk, or one is a copy of the other"
            ));
        }
        open.push((found, name.clone()));
        Ok(())
    }

    /// The store is not open any more.
    pub(super) fn forget(&self, store: &str) {
        self.lock().retain(|(_, name)| name != store);
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Uuid, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
