//! Gates.
fn main() {}
