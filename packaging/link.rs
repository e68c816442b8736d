//! The build script of what is installed: how it is linked.

fn main() {
    println!("cargo::rerun-if-changed=../../packaging/link.rs");
    // The places to adjust when a program is loaded, as a bitmap in place of 24 bytes each: 4 % of a program. The C library
    // of Debian 12 (2.36) is the first that reads it.
    println!("cargo::rustc-link-arg=-Wl,-z,pack-relative-relocs");
}
