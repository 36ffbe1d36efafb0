//! `tinygpt train`, driven as a user drives it.

#[cfg(unix)]
mod damage;
mod nanogpt;
mod place;
mod profile;
mod resume;
mod settings;
#[cfg(unix)]
mod signals;
mod start;
mod texts;
#[cfg(unix)]
mod together;
