pub(crate) mod sample;

mod errors;
mod judges;
mod messages;
mod text;
mod tools;
