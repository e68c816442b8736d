//! Unit tests of the datapath.
