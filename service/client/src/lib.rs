//! Client of the Lumpscope service.
