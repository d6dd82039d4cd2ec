//! countersign
