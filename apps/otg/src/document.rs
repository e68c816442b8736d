//! A JSON document read with the path of each value. Its errors are collected, so that a client gets all of them
//! together. A wrong value reads as its default meanwhile.

use std::cell::{Cell, RefCell};
use std::fmt::Display;
use std::ops::RangeBounds;

use serde_json::Value;

use crate::refusal::Refusal;

/// Maximum number of reported problems; an unrelated document has a problem in each line.
const MOST_PROBLEMS: usize = 50;
/// Longest name, bytes.
const LONGEST_NAME: usize = 4096;
/// Maximum number of names in a list of ports, flows or columns: each name is looked up.
const MOST_NAMES: usize = 1024;
/// Maximum number of values that are generated from a short part of a document, such as 65536 random addresses.
const MOST_MADE_VALUES: u64 = 1 << 20;
/// Longest part of a wrong value that is repeated to the client, characters.
const LONGEST_ECHO: usize = 80;

static ABSENT: Value = Value::Null;

/// The problems of a document.
#[derive(Debug, Default)]
pub(crate) struct Problems {
    /// Texts of the first problems, up to [`MOST_PROBLEMS`].
    texts: RefCell<Vec<String>>,
    count: Cell<usize>,
    made_values: Cell<u64>,
}

impl Problems {
    /// Reads `document` with `read`, and returns the result only if no problem was found.
    ///
    /// # Errors
    /// [`Refusal`] with all problems.
    pub(crate) fn collect<T>(document: &Value, read: impl FnOnce(&Node<'_>) -> T) -> Result<T, Refusal> {
        let problems = Self::default();
        let result = read(&Node { value: document, path: String::new(), problems: &problems });
        let more = problems.count.get().saturating_sub(MOST_PROBLEMS);
        let texts = problems.texts.into_inner();
        if texts.is_empty() { Ok(result) } else { Err(Refusal::validation(texts, more)) }
    }
}

/// A value of the document, or the path of a missing value. `null` means missing, as in the model's JSON.
#[derive(Debug, Clone)]
pub(crate) struct Node<'a> {
    value: &'a Value,
    path: String,
    problems: &'a Problems,
}

impl<'a> Node<'a> {
    /// The path from the root, such as `flows[0].rate`.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Number of problems found so far, in the whole document.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.count.get()
    }

    /// The unchecked value.
    pub(crate) fn value(&self) -> &'a Value {
        self.value
    }

    /// Whether the value is missing.
    pub(crate) fn is_absent(&self) -> bool {
        self.value.is_null()
    }

    /// Reports a problem of this value.
    pub(crate) fn report(&self, problem: impl Display) {
        self.report_at(&self.path, problem);
    }

    /// Reports a problem of the value at `path`, a path from the root.
    pub(crate) fn report_at(&self, path: &str, problem: impl Display) {
        let count = self.problems.count.get();
        self.problems.count.set(count + 1);
        // The document is refused in any case; problems beyond the limit need no text.
        if count >= MOST_PROBLEMS {
            return;
        }
        let text = if path.is_empty() { problem.to_string() } else { format!("{path}: {problem}") };
        self.problems.texts.borrow_mut().push(text);
    }

    /// Reports that this value is not as expected.
    pub(crate) fn report_value(&self, expected: impl Display) {
        self.report(format_args!("{} given; give {expected}", echo(self.value)));
    }

    /// Reports that this value is not supported, with the supported alternatives.
    pub(crate) fn report_unsupported(&self, supported: &[&str]) {
        match supported {
            [] => self.report("not supported"),
            [one] => self.report(format_args!("not supported; supported is {one}")),
            _ => self.report(format_args!("not supported; supported are {}", supported.join(", "))),
        }
    }

    /// Returns the member `key`.
    pub(crate) fn get(&self, key: &str) -> Self {
        let value = self.value.get(key).unwrap_or(&ABSENT);
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Self { value, path, problems: self.problems }
    }

    /// Checks that each member is one of `supported`.
    pub(crate) fn only(&self, supported: &[&str]) {
        match self.value {
            Value::Null => {}
            Value::Object(members) => {
                for key in members.keys().filter(|key| !supported.contains(&key.as_str())) {
                    let member = self.get(key);
                    // Clients write empty lists for missing values.
                    if !member.is_absent() && member.value != &Value::Array(Vec::new()) {
                        member.report_unsupported(supported);
                    }
                }
            }
            _ => self.report_value("an object"),
        }
    }

    /// Returns the elements of a list; none if missing.
    pub(crate) fn items(&self) -> Vec<Self> {
        match self.value {
            Value::Null => Vec::new(),
            Value::Array(values) => {
                let item = |(index, value)| Self {
                    value,
                    path: format!("{}[{index}]", self.path),
                    problems: self.problems,
                };
                values.iter().enumerate().map(item).collect()
            }
            _ => {
                self.report_value("a list");
                Vec::new()
            }
        }
    }

    /// Returns a list of names; empty if missing.
    pub(crate) fn texts(&self) -> Vec<&'a str> {
        self.items_up_to(MOST_NAMES).iter().filter_map(Node::text).collect()
    }

    /// Returns the text, if there is one.
    pub(crate) fn text(&self) -> Option<&'a str> {
        if !self.is_absent() && !self.value.is_string() {
            self.report_value("a text");
        }
        self.value.as_str()
    }

    /// Returns a text that is required and must not be empty.
    pub(crate) fn required_text(&self) -> &'a str {
        match self.text() {
            Some("") => self.report("empty"),
            Some(text) if text.len() > LONGEST_NAME => {
                self.report(format_args!("longer than {LONGEST_NAME} bytes"));
                return "";
            }
            Some(_) => {}
            None if self.is_absent() => self.report("missing"),
            None => {}
        }
        self.value.as_str().unwrap_or_default()
    }

    /// Whether `count` more values can be generated from this value; reports a problem if not.
    pub(crate) fn may_make(&self, count: u64) -> bool {
        let made = self.problems.made_values.get().saturating_add(count);
        self.problems.made_values.set(made);
        if made > MOST_MADE_VALUES {
            self.report(format_args!(
                "more than {MOST_MADE_VALUES} values in all; give fewer, or more than 65536 to draw each anew"
            ));
        }
        made <= MOST_MADE_VALUES
    }

    /// Returns the elements of a list of at most `most`; none if missing or longer.
    pub(crate) fn items_up_to(&self, most: usize) -> Vec<Self> {
        if let Value::Array(values) = self.value
            && values.len() > most
        {
            self.report(format_args!("{} given; give at most {most}", values.len()));
            return Vec::new();
        }
        self.items()
    }

    /// Returns the text, which must be one of `known`, or `default` if missing.
    pub(crate) fn one_of(&self, known: &[&'static str], default: &'static str) -> &'static str {
        let Some(text) = self.text() else { return default };
        known.iter().find(|known| **known == text).copied().unwrap_or_else(|| {
            self.report_value(format_args!("one of {}", known.join(", ")));
            default
        })
    }

    /// Returns what `parse` makes of the value, or `default` if the value is missing, or is not as expected.
    pub(crate) fn read<T>(
        &self,
        parse: impl FnOnce(&'a Value) -> Option<T>,
        expected: impl Display,
        default: T,
    ) -> T {
        if self.is_absent() {
            return default;
        }
        parse(self.value).unwrap_or_else(|| {
            self.report_value(expected);
            default
        })
    }

    /// Returns the boolean, or `default` if missing.
    pub(crate) fn flag(&self, default: bool) -> bool {
        self.read(Value::as_bool, "true or false", default)
    }

    /// Returns a whole number from `least` to `most`, or `default` if missing. The model's JSON writes numbers of 64
    /// bits as texts.
    pub(crate) fn whole(&self, least: u64, most: u64, default: u64) -> u64 {
        let within = |value| whole(value).filter(|number| (least..=most).contains(number));
        self.read(within, format_args!("a whole number from {least} to {most}"), default)
    }

    /// Returns a number within `range`, which `expected` describes in words, or `default` if missing.
    pub(crate) fn number(&self, range: impl RangeBounds<f64>, expected: &str, default: f64) -> f64 {
        self.read(|value| value.as_f64().filter(|number| range.contains(number)), expected, default)
    }

    /// Reads one of the model's unions like [`Self::chosen`]; `None` if it is missing, too.
    pub(crate) fn given(
        &self,
        supported: &[&'static str],
        default: &'static str,
    ) -> Option<(&'static str, Self)> {
        if self.is_absent() { None } else { self.chosen(supported, default) }
    }

    /// Reads one of the model's unions: the member `choice` names the member in use. Returns `None` if `choice` names
    /// no supported member. Another member beside the chosen one is a contradiction.
    pub(crate) fn chosen(
        &self,
        supported: &[&'static str],
        default: &'static str,
    ) -> Option<(&'static str, Self)> {
        if !self.is_absent() && !self.value.is_object() {
            self.report_value("an object");
            return None;
        }
        let choice = self.get("choice").text().unwrap_or(default);
        let Some(choice) = supported.iter().find(|known| **known == choice).copied() else {
            self.get(choice).report_unsupported(supported);
            return None;
        };
        for (key, value) in self.value.as_object().into_iter().flatten() {
            if key == "choice" || key == choice || value.is_null() || value == &Value::Array(Vec::new()) {
                continue;
            }
            if supported.contains(&key.as_str()) {
                self.get(key).report(format_args!(
                    "given, but {}.choice is {choice}; choose {key} or leave it out",
                    self.path
                ));
            } else {
                self.get(key).report_unsupported(supported);
            }
        }
        Some((choice, self.get(choice)))
    }
}

/// Reads a whole number in the form of the model's JSON: up to 32 bits as a number, 64 bits as a text.
pub(crate) fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.parse().ok(),
        value => value.as_u64(),
    }
}

/// Returns the value in a form that a client finds again in the request, cut off if it is long.
pub(crate) fn echo(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(LONGEST_ECHO) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problems(document: &Value, read: impl FnOnce(&Node<'_>)) -> Vec<String> {
        Problems::collect(document, read).map_or_else(|refusal| refusal.errors, |()| Vec::new())
    }

    #[test]
    fn all_problems_are_reported_with_their_paths() {
        let document = json!({
            "ports": [{"name": 5}, {"name": "p2", "gre": {}, "none": null, "empty": []}],
            "rate": {"pps": "12x"},
            "on": "yes",
        });
        let found = problems(&document, |root| {
            for port in root.get("ports").items() {
                port.only(&["name", "location"]);
                port.get("name").required_text();
                port.get("location").text();
            }
            assert_eq!(root.get("rate").get("pps").whole(1, 9, 7), 7);
            assert!(root.get("on").flag(true));
        });
        assert_eq!(
            found,
            [
                "ports[0].name: 5 given; give a text",
                "ports[1].gre: not supported; supported are name, location",
                "rate.pps: \"12x\" given; give a whole number from 1 to 9",
                "on: \"yes\" given; give true or false",
            ]
        );
    }

    #[test]
    fn numbers_of_64_bits_can_be_texts() {
        let document = json!({"a": "18446744073709551615", "b": 5, "c": null});
        let found = problems(&document, |root| {
            assert_eq!(root.get("a").whole(0, u64::MAX, 0), u64::MAX);
            assert_eq!(root.get("b").whole(0, 5, 0), 5);
            assert_eq!(root.get("c").whole(0, 5, 3), 3);
            assert_eq!(root.get("d").number(0.0..=1.0, "0 to 1", 0.5), 0.5);
        });
        assert!(found.is_empty(), "{found:?}");
    }

    #[test]
    fn a_choice_names_the_member_that_counts() {
        let document = json!({
            "a": {"choice": "pps", "pps": 1},
            "b": {"pps": 2},
            "c": {"choice": "gbps", "gbps": 1},
            "d": {"choice": "pps", "pps": 1, "bps": 5},
            "e": 7,
        });
        let found = problems(&document, |root| {
            let choice = |key: &str| root.get(key).chosen(&["pps", "bps"], "pps").map(|(name, _)| name);
            assert_eq!((choice("a"), choice("b"), choice("absent")), (Some("pps"), Some("pps"), Some("pps")));
            assert_eq!((choice("c"), choice("d"), choice("e")), (None, Some("pps"), None));
        });
        assert_eq!(
            found,
            [
                "c.gbps: not supported; supported are pps, bps",
                "d.bps: given, but d.choice is pps; choose bps or leave it out",
                "e: 7 given; give an object",
            ]
        );
    }

    #[test]
    fn many_problems_are_listed_up_to_a_limit_and_counted() {
        let found = problems(&json!(vec![0; 5000]), |root| {
            root.items().iter().for_each(|item| item.report("wrong"));
            assert_eq!(root.problem_count(), 5000);
        });
        assert_eq!(found.len(), MOST_PROBLEMS + 1);
        assert_eq!(found.last().unwrap(), "and 4950 more");
    }

    #[test]
    fn lists_names_and_expanded_values_are_limited() {
        let document = json!({"list": [1, 2, 3], "name": "x".repeat(LONGEST_NAME + 1), "a": {}, "b": {}});
        let found = problems(&document, |root| {
            assert!(root.get("list").items_up_to(2).is_empty());
            assert_eq!(root.get("list").items_up_to(3).len(), 3);
            assert_eq!(root.get("name").required_text(), "");
            assert!(root.get("a").may_make(MOST_MADE_VALUES));
            assert!(!root.get("b").may_make(1));
        });
        assert_eq!(found.len(), 3, "{found:?}");
        for (problem, words) in found.iter().zip(["list: 3 given", "name: longer than", "b: more than"]) {
            assert!(problem.starts_with(words), "{problem}");
        }
    }

    #[test]
    fn long_values_are_cut_off_in_messages() {
        let found = problems(&json!("é".repeat(10_000)), |root| root.report_value("less"));
        assert!(found[0].len() < 300, "{found:?}");
    }
}
