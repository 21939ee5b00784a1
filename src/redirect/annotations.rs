//! Pod facts → [`Redirect`](super::Redirect).
