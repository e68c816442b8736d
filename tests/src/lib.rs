//! Fixtures of the end-to-end tests.
