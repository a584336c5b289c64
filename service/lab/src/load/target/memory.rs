//! Memory of bodies that is used again: no fresh pages, no clearing.

use std::sync::{Arc, Mutex, PoisonError};

/// Where the memory of one body waits for the next one.
#[derive(Clone, Default)]
pub(super) struct Home(Arc<Mutex<Vec<u8>>>);

/// The bytes of one body; its memory goes home when it is dropped.
pub(super) struct Body {
    memory: Vec<u8>,
    len: usize,
    home: Home,
}

impl Home {
    /// Room for a body; what is in it is of bodies before.
    pub(super) fn body(&self, len: usize) -> Body {
        let memory = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        let mut body = Body {
            memory,
            len,
            home: self.clone(),
        };
        if body.memory.len() < len {
            body.memory.resize(len, 0);
        }
        body
    }
}

impl Body {
    /// Where its bytes go.
    pub(super) fn room(&mut self) -> &mut [u8] {
        self.memory.get_mut(..self.len).unwrap_or_default()
    }

    /// It has only so many bytes.
    pub(super) fn shorten(&mut self, len: usize) {
        self.len = self.len.min(len);
    }
}

impl AsRef<[u8]> for Body {
    fn as_ref(&self) -> &[u8] {
        self.memory.get(..self.len).unwrap_or_default()
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        let mut home = self.home.0.lock().unwrap_or_else(PoisonError::into_inner);
        *home = std::mem::take(&mut self.memory);
    }
}
