//! What a client is told when a request cannot be done: the model's `error` object.

use axum::http::StatusCode;
use serde::Serialize;

/// Most problems told at once; a document of other origin has one in each line.
const MOST_PROBLEMS: usize = 50;

/// The model's `error`: an HTTP status, whose fault it is, and one sentence per problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    pub(crate) kind: Kind,
    /// Each begins with the path of what is wrong in the request, where it is there.
    pub(crate) errors: Vec<String>,
}

/// Whose fault it is, in the model's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Validation,
    Internal,
}

impl Refusal {
    /// The request is wrong, or asks for what is not supported.
    pub(crate) fn validation(errors: Vec<String>) -> Self {
        Self { code: StatusCode::BAD_REQUEST.as_u16(), kind: Kind::Validation, errors: shortened(errors) }
    }

    /// The same for one problem.
    pub(crate) fn invalid(error: impl Into<String>) -> Self {
        Self::validation(vec![error.into()])
    }

    /// The request is right and could not be done here.
    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self {
            code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            kind: Kind::Internal,
            errors: vec![error.into()],
        }
    }

    /// The same under another HTTP status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { code: status.as_u16(), ..self }
    }
}

fn shortened(mut errors: Vec<String>) -> Vec<String> {
    if let Some(more) = errors.len().checked_sub(MOST_PROBLEMS).filter(|more| *more > 0) {
        errors.truncate(MOST_PROBLEMS);
        errors.push(format!("and {more} more"));
    }
    errors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_the_model_s_error_object() {
        let refusal = Refusal::invalid("flows[0].packet[2].gre: not supported");
        assert_eq!(
            serde_json::to_value(refusal).unwrap(),
            serde_json::json!({
                "code": 400, "kind": "validation", "errors": ["flows[0].packet[2].gre: not supported"]
            })
        );
        assert_eq!(Refusal::internal("out of memory").code, 500);
    }

    #[test]
    fn a_document_with_problems_in_each_line_is_not_answered_with_all_of_them() {
        let refusal = Refusal::validation(vec!["wrong".to_owned(); 5000]);
        assert_eq!(refusal.errors.len(), MOST_PROBLEMS + 1);
        assert_eq!(refusal.errors.last().unwrap(), "and 4950 more");
    }
}
