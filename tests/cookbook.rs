//! Placeholder until the cookbook stands.
