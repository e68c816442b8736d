//! Generator, receiver, trial, replay and scripts over any port.
