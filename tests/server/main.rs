//! The approval server over real sockets.
fn main() {}
