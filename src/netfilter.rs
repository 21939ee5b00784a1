//! Being built.

pub mod nft;
pub mod restore;
