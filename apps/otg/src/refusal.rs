//! The reply to a request that cannot be carried out: the model's `error` object.

use hyper::StatusCode;
use serde::Serialize;

/// The model's `error`: an HTTP status, whether the request or the server is at fault, and one sentence per problem.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Refusal {
    /// The HTTP status.
    pub(crate) code: u16,
    pub(crate) kind: Kind,
    /// Sentences, one per problem. Each begins with the path of the faulty part, if that is in the request.
    pub(crate) errors: Vec<String>,
}

/// The kind of fault, in the model's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    Validation,
    Internal,
}

impl Refusal {
    /// Refuses an invalid or unsupported request, with `errors` and the number of further errors.
    pub(crate) fn validation(mut errors: Vec<String>, more: usize) -> Self {
        if more > 0 {
            errors.push(format!("and {more} more"));
        }
        Self { code: StatusCode::BAD_REQUEST.as_u16(), kind: Kind::Validation, errors }
    }

    /// Refuses a request because of one problem.
    pub(crate) fn invalid(error: impl Into<String>) -> Self {
        Self::validation(vec![error.into()], 0)
    }

    /// Reports that a valid request could not be carried out here.
    pub(crate) fn internal(error: impl Into<String>) -> Self {
        Self {
            code: StatusCode::INTERNAL_SERVER_ERROR.as_u16(),
            kind: Kind::Internal,
            errors: vec![error.into()],
        }
    }

    /// Sets another HTTP status.
    pub(crate) fn with_status(self, status: StatusCode) -> Self {
        Self { code: status.as_u16(), ..self }
    }
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
}
