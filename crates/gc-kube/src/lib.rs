//! The API-server client: discovery, metadata watches, effects to requests, pacing.
