//! Being built.
use crate::stage::Case;
pub(crate) const CASES: &[Case] = &[];
