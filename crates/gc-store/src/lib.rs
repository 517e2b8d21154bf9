//! Storage for the registry: memory, redb and etcd.
