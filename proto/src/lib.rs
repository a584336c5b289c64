//! Generated gRPC client and server of lumpscope.v1.
