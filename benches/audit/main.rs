//! What auditing costs.
fn main() {}
