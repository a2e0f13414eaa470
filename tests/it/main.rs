//! One integration binary.
fn main() {}
