//! Errors in a saved rule set.

/// The size limit of a saved rule set, in bytes.
pub(super) const MAX_BYTES: usize = 16 << 20;

/// The input does not have the format of `iptables-save` or `iptables-restore`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("the rules are larger than {MAX_BYTES} bytes")]
    Large,
    #[error("line {number}: {reason}")]
    Line {
        /// 1-based.
        number: usize,
        reason: Box<Error>,
    },
    #[error("expected a line of iptables-save, as `*nat`, `:CHAIN ACCEPT [0:0]` or `-A CHAIN …`, found {0:?}")]
    Syntax(String),
    #[error("expected a table, such as `*nat`, before this line")]
    NoTable,
    #[error("`{0}` is not a command in the format of iptables-save: pass the output of iptables-save")]
    Command(String),
    #[error("the value of `{text}` is invalid")]
    Value { text: String },
    #[error("{0:?} is not a rule number: expected 1 or more")]
    Position(String),
}
