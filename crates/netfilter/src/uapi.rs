//! Constants from the kernel's `linux/netfilter/nf_tables.h`, `nfnetlink.h`, `nf_tables_compat.h` and related headers.

pub(super) const NFNL_MSG_BATCH_BEGIN: u16 = 16;
pub(super) const NFNL_MSG_BATCH_END: u16 = 17;
pub(super) const NFNL_BATCH_GENID: u16 = 1;
pub(super) const NFNL_SUBSYS_NFTABLES: u8 = 10;
pub(super) const NFNL_SUBSYS_NFT_COMPAT: u8 = 11;

pub(super) const NFT_MSG_NEWTABLE: u16 = 0;
pub(super) const NFT_MSG_GETTABLE: u16 = 1;
pub(super) const NFT_MSG_DELTABLE: u16 = 2;
pub(super) const NFT_MSG_NEWCHAIN: u16 = 3;
pub(super) const NFT_MSG_GETCHAIN: u16 = 4;
pub(super) const NFT_MSG_DELCHAIN: u16 = 5;
pub(super) const NFT_MSG_NEWRULE: u16 = 6;
pub(super) const NFT_MSG_GETRULE: u16 = 7;
pub(super) const NFT_MSG_DELRULE: u16 = 8;
pub(super) const NFT_MSG_NEWSET: u16 = 9;
pub(super) const NFT_MSG_NEWSETELEM: u16 = 12;
pub(super) const NFT_MSG_GETSETELEM: u16 = 13;
pub(super) const NFT_MSG_GETGEN: u16 = 16;
pub(super) const NFNL_MSG_COMPAT_GET: u16 = 0;

/// Returns the type (`nlmsg_type`) of a netfilter subsystem's message.
pub(super) const fn message_type(subsystem: u8, message: u16) -> u16 {
    (subsystem as u16) << 8 | message
}

pub(super) const NFTA_LIST_ELEM: u16 = 1;

pub(super) const NFTA_GEN_ID: u16 = 1;

pub(super) const NFTA_TABLE_NAME: u16 = 1;
pub(super) const NFTA_TABLE_FLAGS: u16 = 2;
pub(super) const NFTA_TABLE_USE: u16 = 3;
pub(super) const NFT_TABLE_F_DORMANT: u32 = 1;

pub(super) const NFTA_CHAIN_TABLE: u16 = 1;
pub(super) const NFTA_CHAIN_NAME: u16 = 3;
pub(super) const NFTA_CHAIN_HOOK: u16 = 4;
pub(super) const NFTA_CHAIN_POLICY: u16 = 5;
pub(super) const NFTA_CHAIN_TYPE: u16 = 7;
pub(super) const NFTA_HOOK_HOOKNUM: u16 = 1;
pub(super) const NFTA_HOOK_PRIORITY: u16 = 2;

pub(super) const NFTA_RULE_TABLE: u16 = 1;
pub(super) const NFTA_RULE_CHAIN: u16 = 2;
pub(super) const NFTA_RULE_HANDLE: u16 = 3;
pub(super) const NFTA_RULE_EXPRESSIONS: u16 = 4;
pub(super) const NFTA_RULE_COMPAT: u16 = 5;
pub(super) const NFTA_RULE_POSITION: u16 = 6;
pub(super) const NFTA_RULE_COMPAT_PROTO: u16 = 1;
pub(super) const NFTA_RULE_COMPAT_FLAGS: u16 = 2;

pub(super) const NFTA_SET_TABLE: u16 = 1;
pub(super) const NFTA_SET_NAME: u16 = 2;
pub(super) const NFTA_SET_FLAGS: u16 = 3;
pub(super) const NFTA_SET_KEY_TYPE: u16 = 4;
pub(super) const NFTA_SET_KEY_LEN: u16 = 5;
pub(super) const NFTA_SET_DESC: u16 = 9;
pub(super) const NFTA_SET_ID: u16 = 10;
pub(super) const NFTA_SET_DESC_SIZE: u16 = 1;
pub(super) const NFT_SET_ANONYMOUS: u32 = 1;
pub(super) const NFT_SET_CONSTANT: u32 = 2;

pub(super) const NFTA_SET_ELEM_LIST_TABLE: u16 = 1;
pub(super) const NFTA_SET_ELEM_LIST_SET: u16 = 2;
pub(super) const NFTA_SET_ELEM_LIST_ELEMENTS: u16 = 3;
pub(super) const NFTA_SET_ELEM_LIST_SET_ID: u16 = 4;
pub(super) const NFTA_SET_ELEM_KEY: u16 = 1;

pub(super) const NFTA_EXPR_NAME: u16 = 1;
pub(super) const NFTA_EXPR_DATA: u16 = 2;

pub(super) const NFTA_DATA_VALUE: u16 = 1;
pub(super) const NFTA_DATA_VERDICT: u16 = 2;
pub(super) const NFTA_VERDICT_CODE: u16 = 1;
pub(super) const NFTA_VERDICT_CHAIN: u16 = 2;
pub(super) const NF_DROP: u32 = 0;
pub(super) const NF_ACCEPT: u32 = 1;
pub(super) const NFT_JUMP: u32 = -3_i32 as u32;
pub(super) const NFT_GOTO: u32 = -4_i32 as u32;
pub(super) const NFT_RETURN: u32 = -5_i32 as u32;

pub(super) const NFT_REG_VERDICT: u32 = 0;
pub(super) const NFT_REG_1: u32 = 1;

pub(super) const NFTA_IMMEDIATE_DREG: u16 = 1;
pub(super) const NFTA_IMMEDIATE_DATA: u16 = 2;

pub(super) const NFTA_BITWISE_SREG: u16 = 1;
pub(super) const NFTA_BITWISE_DREG: u16 = 2;
pub(super) const NFTA_BITWISE_LEN: u16 = 3;
pub(super) const NFTA_BITWISE_MASK: u16 = 4;
pub(super) const NFTA_BITWISE_XOR: u16 = 5;
pub(super) const NFTA_BITWISE_OP: u16 = 6;
/// `NFT_BITWISE_MASK_XOR`, formerly `NFT_BITWISE_BOOL`
pub(super) const NFT_BITWISE_MASK_XOR: u32 = 0;

pub(super) const NFTA_CMP_SREG: u16 = 1;
pub(super) const NFTA_CMP_OP: u16 = 2;
pub(super) const NFTA_CMP_DATA: u16 = 3;

pub(super) const NFTA_LOOKUP_SET: u16 = 1;
pub(super) const NFTA_LOOKUP_SREG: u16 = 2;
pub(super) const NFTA_LOOKUP_DREG: u16 = 3;
pub(super) const NFTA_LOOKUP_SET_ID: u16 = 4;
pub(super) const NFTA_LOOKUP_FLAGS: u16 = 5;
pub(super) const NFT_LOOKUP_F_INV: u32 = 1;

pub(super) const NFTA_PAYLOAD_DREG: u16 = 1;
pub(super) const NFTA_PAYLOAD_BASE: u16 = 2;
pub(super) const NFTA_PAYLOAD_OFFSET: u16 = 3;
pub(super) const NFTA_PAYLOAD_LEN: u16 = 4;

pub(super) const NFTA_META_DREG: u16 = 1;
pub(super) const NFTA_META_KEY: u16 = 2;
pub(super) const NFTA_META_SREG: u16 = 3;

pub(super) const NFTA_CT_DREG: u16 = 1;
pub(super) const NFTA_CT_KEY: u16 = 2;
pub(super) const NFTA_CT_SREG: u16 = 4;

pub(super) const NFTA_REDIR_REG_PROTO_MIN: u16 = 1;
pub(super) const NFTA_REDIR_REG_PROTO_MAX: u16 = 2;
pub(super) const NFTA_REDIR_FLAGS: u16 = 3;
pub(super) const NF_NAT_RANGE_PROTO_SPECIFIED: u32 = 2;

pub(super) const NFTA_TPROXY_FAMILY: u16 = 1;
pub(super) const NFTA_TPROXY_REG_PORT: u16 = 3;

/// `NFTA_MATCH_NAME` and `NFTA_TARGET_NAME`. They have the same number, and so have the other attributes of matches and
/// targets.
pub(super) const NFTA_XT_NAME: u16 = 1;
pub(super) const NFTA_XT_REV: u16 = 2;
pub(super) const NFTA_XT_INFO: u16 = 3;

pub(super) const NFTA_COMPAT_NAME: u16 = 1;
pub(super) const NFTA_COMPAT_REV: u16 = 2;
pub(super) const NFTA_COMPAT_TYPE: u16 = 3;
