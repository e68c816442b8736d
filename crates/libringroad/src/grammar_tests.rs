//! Property tests of port names: any text may be read. `compat/tests` checks the meaning of the forms.

use proptest::prelude::*;

use crate::binding::split_binding;
use crate::option_text::{Setting, split_option};
use crate::port_name::split_port_name;

/// Text of the grammar's characters, and some others.
fn text() -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(proptest::sample::select(b"aZ09_-^*/@{}:=,xzR. \x80".to_vec()), 0..24)
}

proptest! {
    #[test]
    fn a_name_and_its_rest_make_the_whole_text(scheme in "netmap:|vale|vale0:|", tail in text()) {
        let spec = [scheme.as_bytes(), &tail].concat();
        if let Ok((name, rest)) = split_port_name(&spec) {
            let stored = spec.strip_prefix(b"netmap:").unwrap_or(&spec);
            prop_assert_eq!([name, rest].concat(), stored);
            prop_assert!(!name.is_empty() && name.len() < 64);
            prop_assert!(rest.first().is_none_or(|byte| b"-*^/@".contains(byte)));
        }
    }

    #[test]
    fn a_binding_ends_where_options_begin(text in text(), region: u16) {
        if let Ok((binding, rest)) = split_binding(&text, region) {
            prop_assert!(text.ends_with(rest));
            prop_assert!(rest.is_empty() || (rest[0] == b'@' && !rest[1..].first().is_some_and(u8::is_ascii_digit)));
            prop_assert!(region == 0 || binding.region == region);
            prop_assert!(binding.ring < 4095);
        }
    }

    #[test]
    fn options_can_be_joined_again(text in text()) {
        let mut list = [b"@", &text[..]].concat();
        while let Ok((option, rest)) = split_option(&list) {
            let mut again = [b"@", option.name].concat();
            for (index, Setting { key, value }) in option.settings.iter().enumerate() {
                let separator = match (index, key) {
                    (0, Some(_)) => &b":"[..],
                    (0, None) => b"",
                    _ => b",",
                };
                again.extend_from_slice(separator);
                again.extend_from_slice(key.unwrap_or_default());
                if let Some(value) = value {
                    again.push(b'=');
                    again.extend_from_slice(value);
                }
            }
            again.extend_from_slice(rest);
            prop_assert_eq!(&again, &list);
            list = rest.to_vec();
        }
    }
}
