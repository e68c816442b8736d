//! Turns HTTP requests into calls of the [`Controller`], and its results into responses.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderValue, WWW_AUTHENTICATE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::Gate;
use crate::connection_limit::ConnectionPermit;
use crate::controller::Controller;
use crate::refusal::Refusal;

/// Largest request, bytes: room for lists of 65536 addresses in several fields.
pub(crate) const MAX_REQUEST_BYTES: usize = 32 << 20;
/// Maximum number of values in a request: each takes many times the memory of its text.
const MAX_VALUES: usize = 1 << 20;
/// Maximum number of requests with a body in memory at a time; further requests wait.
const MAX_BODIES: usize = 4;
/// Time limit for the body of a request.
const BODY_TIME: Duration = Duration::from_secs(60);
/// Maximum number of bytes read of a refused request. Reading lets the client get the reason before the connection
/// closes.
const MAX_REFUSED_BYTES: usize = 1 << 20;

type Answer = Response<Full<Bytes>>;
type PostHandler = fn(&mut Controller, Value) -> Result<Value, Refusal>;

/// Finds the action of a request: those of the model, and one outside the model.
fn action(method: &Method, path: &str) -> Option<PostHandler> {
    Some(match (method.as_str(), path) {
        ("GET", "/config") => Controller::config,
        ("POST", "/config") => Controller::set_config,
        ("PATCH", "/config") => Controller::update_config,
        ("PATCH", "/config/append") => Controller::append_config,
        ("PATCH", "/config/delete") => Controller::delete_config,
        ("POST", "/control/state") => Controller::set_state,
        ("POST", "/control/action") => Controller::action,
        ("POST", "/monitor/metrics") => Controller::metrics,
        ("POST", "/monitor/states") => Controller::states,
        ("POST", "/monitor/capture") => Controller::capture,
        ("GET", "/capabilities/version") => Controller::version,
        ("GET", "/ringroad/flows") => Controller::flows,
        _ => return None,
    })
}

/// Handler of the requests of all connections.
#[derive(Debug)]
pub(crate) struct RequestHandler {
    gate: Gate,
    controller: Arc<Mutex<Controller>>,
    bodies: Arc<Semaphore>,
}

impl RequestHandler {
    pub(crate) fn new(gate: Gate, controller: Controller) -> Self {
        let (controller, bodies) = (Arc::new(Mutex::new(controller)), Arc::new(Semaphore::new(MAX_BODIES)));
        Self { gate, controller, bodies }
    }

    /// Answers a request of the connection with permit `permit`.
    pub(crate) async fn answer(
        &self,
        permit: &ConnectionPermit,
        request: Request<Incoming>,
    ) -> Result<Answer, Infallible> {
        let (head, body) = request.into_parts();
        if let Err(refusal) = self.gate.check(&head) {
            discard(body).await;
            return Ok(turned_away(refusal));
        }
        let _work = permit.work();
        let done = self.respond(&head.method, head.uri.path(), &head.headers, body).await;
        Ok(done.map_or_else(refused, |document| json(StatusCode::OK, document.to_string())))
    }

    async fn respond(
        &self,
        method: &Method,
        path: &str,
        headers: &HeaderMap,
        body: Incoming,
    ) -> Result<Value, Refusal> {
        let action = action(method, path).ok_or_else(|| {
            let short: String = path.chars().take(80).collect();
            Refusal::invalid(format!(
                "{method} {short}: the Open Traffic Generator model has no such request"
            ))
            .with_status(StatusCode::NOT_FOUND)
        })?;
        let (body, held) = self.read(body).await?;
        check_type(headers, &body)?;
        let controller = Arc::clone(&self.controller);
        let work = move || {
            let request = document(&body)?;
            drop(body);
            let done = action(&mut controller.lock().unwrap_or_else(PoisonError::into_inner), request);
            // The permit is dropped here, since the work continues when its client disconnects.
            drop(held);
            done
        };
        // A blocking thread, since opening ports takes time.
        let done = tokio::task::spawn_blocking(work).await;
        done.map_err(|_| Refusal::internal("the request failed; this is a defect: please report it"))?
    }

    /// Reads a whole body, which stays in memory until the permit is dropped.
    async fn read(&self, body: Incoming) -> Result<(Bytes, Option<OwnedSemaphorePermit>), Refusal> {
        if body.is_end_stream() {
            return Ok((Bytes::new(), None));
        }
        let unreadable = |why: &str, status| {
            Refusal::invalid(format!("the request cannot be read: {why}")).with_status(status)
        };
        let held = Arc::clone(&self.bodies).acquire_owned().await.ok();
        match tokio::time::timeout(BODY_TIME, Limited::new(body, MAX_REQUEST_BYTES).collect()).await {
            Ok(Ok(body)) => Ok((body.to_bytes(), held)),
            Ok(Err(error)) if error.is::<LengthLimitError>() => Err(unreadable(
                &format!("it is larger than {MAX_REQUEST_BYTES} bytes"),
                StatusCode::PAYLOAD_TOO_LARGE,
            )),
            Ok(Err(error)) => Err(unreadable(&error.to_string(), StatusCode::BAD_REQUEST)),
            Err(_) => Err(unreadable("it arrives too slowly", StatusCode::REQUEST_TIMEOUT)),
        }
    }
}

/// Reads data of a refused client, up to a limit.
async fn discard(mut body: Incoming) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_REFUSED_BYTES {
            return;
        }
    }
}

/// Checks the content type. A page in a browser can send other types to any server without a preflight request.
fn check_type(headers: &HeaderMap, body: &[u8]) -> Result<(), Refusal> {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    if body.is_empty() || kind.starts_with("application/json") {
        return Ok(());
    }
    let short: String = kind.chars().take(80).collect();
    Err(Refusal::invalid(format!("content type \"{short}\" given; give application/json"))
        .with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE))
}

/// Parses the document of a request; `null` if missing.
fn document(body: &[u8]) -> Result<Value, Refusal> {
    if body.is_empty() {
        return Ok(Value::Null);
    }
    // Each value but the first follows one of these characters.
    let values = body.iter().filter(|byte| b",:[{".contains(byte)).count();
    if values > MAX_VALUES {
        return Err(Refusal::invalid(format!(
            "the request has more than {MAX_VALUES} values; send it in parts"
        ))
        .with_status(StatusCode::PAYLOAD_TOO_LARGE));
    }
    serde_json::from_slice(body)
        .map_err(|error| Refusal::invalid(format!("the request is not JSON: {error}")))
}

fn json(status: StatusCode, body: String) -> Answer {
    let mut answer = Response::new(Full::from(body));
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    answer
}

fn refused(refusal: Refusal) -> Answer {
    let status = StatusCode::from_u16(refusal.code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    json(status, serde_json::to_string(&refusal).unwrap_or_default())
}

/// Makes the reply to a refused client; the connection ends after it.
fn turned_away(refusal: Refusal) -> Answer {
    let mut answer = refused(refusal);
    let headers = answer.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}
