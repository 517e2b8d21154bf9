//! A seeded world with faults, and the oracles that judge a run.
