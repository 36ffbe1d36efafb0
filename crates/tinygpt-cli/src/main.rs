//! The program `tinygpt`.

fn main() {}
