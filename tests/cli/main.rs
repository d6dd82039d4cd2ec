//! The binary `countersign`, as a person runs it.
