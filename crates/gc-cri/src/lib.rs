//! The container-runtime client.
