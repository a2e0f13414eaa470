//! Requests beside the load, against a server of a few lines.
