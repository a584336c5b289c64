//! Loads the probes and ties block requests to their owners.
