//! Sets the file name under which programs look for the library, and compiles the one function that only C can define.

fn main() {
    println!("cargo::rerun-if-changed=src/formatted_error.c");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libringroad.so.0");
    cc::Build::new()
        .file("src/formatted_error.c")
        .include("../../compat/include")
        .std("c11")
        .extra_warnings(true)
        .flag("-fvisibility=hidden")
        .compile("ringroad_formatted_error");
}
