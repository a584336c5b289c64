//! Layout of what the probes hand to user space.
