//! The generator under the Open Traffic Generator model, over HTTP and HTTPS.
