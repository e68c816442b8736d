pub(crate) mod sample;

mod errors;
mod messages;
