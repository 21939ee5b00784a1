//! Tests of the plugin and its installer together with Multus: the real Multus plugin, and the program in its DaemonSet that writes its
//! configuration.

mod lifecycle;
mod networks;
mod stage;

use crate::stage::Case;

pub(crate) const CASES: &[&[Case]] = &[networks::CASES, lifecycle::CASES];
