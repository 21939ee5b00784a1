//! From a [`Redirect`](crate::redirect::Redirect) and what the netns looks like to the rules that a kernel is to hold.
//!
//! Pure. `converge` and the dry run of `istio-iptables` call [`build`]; `netfilter` encodes the result. The order of
//! rules is the product: Istio's, rule for rule.

mod ruleset;

pub use ruleset::{At, Chain, CtStates, Families, Family, Match, Proto, Rule, RuleSet, Table, Target};
