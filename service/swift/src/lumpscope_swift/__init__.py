"""OpenStack Swift's object server over a local Lumpscope service. See README.md and FORMAT.md."""
