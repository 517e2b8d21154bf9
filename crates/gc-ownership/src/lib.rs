//! The ownership graph and the cascade engine over it.
