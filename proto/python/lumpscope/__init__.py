"""The Lumpscope service: messages and stubs of lumpscope.v1."""
