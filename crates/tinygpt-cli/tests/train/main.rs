//! `tinygpt train`, driven as a user drives it.

mod damage;
mod place;
mod resume;
mod settings;
mod start;
mod texts;
