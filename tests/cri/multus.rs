//! Tests of the plugin and its installer beside Multus: the real plugin, and the program of its DaemonSet that writes its
//! configuration.

mod lifecycle;
mod networks;
mod stage;

use crate::stage::Case;

pub(crate) const CASES: &[&[Case]] = &[networks::CASES, lifecycle::CASES];
