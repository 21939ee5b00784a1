//! The admission server: HTTPS, certificates, configuration that is watched, the caBundle.
//!
//! The binary `sidecar-injector` starts it. What is injected, `inject` decides.
