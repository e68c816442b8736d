//! Hooks, which take the place of functions of the C library, and the C library's own functions, found after this
//! library's in the order of symbol lookup.
//!
//! Each function is found when it is first needed, so that it can be called before any constructor has run.
//! Constructors find all others, so that signal handlers need not.

use libc::{c_int, c_void, ssize_t};

/// Return value of a call of a function that does not exist.
pub(crate) trait FailureValue {
    const FAILED: Self;
}

impl FailureValue for c_int {
    const FAILED: Self = -1;
}

impl FailureValue for ssize_t {
    const FAILED: Self = -1;
}

impl FailureValue for *mut c_void {
    const FAILED: Self = libc::MAP_FAILED;
}

/// Defines hooks, and the module `next` with the C library's functions of these names. A row begins with `[]` if any
/// arguments are allowed, else with `[unsafe]`. Names after `=` are further names of the function. If the C prototype
/// ends with dots, they stand behind a semicolon, before the argument that programs pass in their place: the supported
/// platforms pass it like any other.
macro_rules! hooks {
    ($($kind:tt $name:ident $arguments:tt -> $result:ty $(= $($alias:ident),+)? $body:block)+) => {
        $(
            $crate::hooks::hook!($kind $name $arguments $result, $body);
            $($($crate::hooks::hook!($kind $alias $arguments $result, $body);)+)?
        )+

        /// The C library's functions.
        pub(crate) mod next {
            #[allow(unused_imports, reason = "the hooks' types are among the names")]
            use super::*;

            #[allow(non_upper_case_globals)]
            mod functions {
                use ringroad_c_face::ForeignFunction;
                $(pub(super) static $name: ForeignFunction =
                    ForeignFunction::new(concat!(stringify!($name), "\0"));)+
            }

            $($crate::hooks::next_function!($kind $name $arguments $result);)+

            /// Called by the loader before `main`.
            extern "C" fn find_all() {
                $(functions::$name.find(|| libc::RTLD_NEXT);)+
            }

            #[used]
            #[unsafe(link_section = ".init_array")]
            static AT_LOAD: extern "C" fn() = find_all;
        }
    };
}

/// Defines one hook under one name.
macro_rules! hook {
    ([$($unsafe:tt)?] $name:ident
     ($($argument:ident: $type:ty),* $(; $dots:tt $last:ident: $last_type:ty)?) $result:ty, $body:block) => {
        /// The C function of this name.
        ///
        /// # Safety
        /// The conditions on its manual page.
        #[unsafe(no_mangle)]
        pub $($unsafe)? extern "C" fn $name($($argument: $type,)* $($last: $last_type)?) -> $result $body
    };
}

/// Defines one of the C library's functions.
macro_rules! next_function {
    ([$($unsafe:tt)?] $name:ident
     ($($argument:ident: $type:ty),* $(; $dots:tt $last:ident: $last_type:ty)?) $result:ty) => {
        /// The C library's function. Pointers must be as its manual page requires.
        pub(crate) $($unsafe)? fn $name($($argument: $type,)* $($last: $last_type)?) -> $result {
            let address = functions::$name.find(|| libc::RTLD_NEXT);
            if address.is_null() {
                $crate::errno::set(libc::ENOSYS);
                return <$result as $crate::hooks::FailureValue>::FAILED;
            }
            type Function = unsafe extern "C" fn($($type,)* $($dots)?) -> $result;
            // SAFETY: the C library's function of this name has this type.
            let function: Function = unsafe { std::mem::transmute(address) };
            // SAFETY: the caller's promise; functions that are safe take only numbers, and check them. An argument that
            // a variadic function does not read is harmless.
            unsafe { function($($argument,)* $($last)?) }
        }
    };
}

pub(crate) use {hook, hooks, next_function};
