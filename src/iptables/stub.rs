//! In the place of `converge` until it is there; same names, same shapes.

use std::path::Path;

use super::Flavour;
use crate::redirect::Redirect;

/// How rules get into the kernel.
#[derive(Debug, Clone, Copy)]
#[expect(dead_code, reason = "read by converge")]
pub(super) struct Options<'a> {
    pub(super) netns: &'a Path,
    pub(super) native_nftables: bool,
    pub(super) forced: Option<Flavour>,
    pub(super) on_difference: OnDifference,
}

#[derive(Debug, Clone, Copy)]
pub(super) enum OnDifference {
    Mend,
    Refuse,
}

#[derive(Debug)]
pub(super) struct Outcome;

/// Always.
#[derive(Debug, thiserror::Error)]
#[error("not built yet")]
pub struct Error;

pub(super) fn apply(_: &Redirect, _: &Options<'_>) -> Result<Outcome, Error> {
    Err(Error)
}

pub(super) fn cleanup(_: &Redirect, _: &Options<'_>) -> Result<Outcome, Error> {
    Err(Error)
}
