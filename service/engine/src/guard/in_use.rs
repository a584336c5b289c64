//! Who uses a device or file.
