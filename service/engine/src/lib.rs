//! The lump store as a library.
