//! The command `tenfold`.
fn main() {}
