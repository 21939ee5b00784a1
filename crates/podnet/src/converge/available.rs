//! Decides whether redirection can be programmed at all.

use netfilter::{self, Backend};

use super::{Error, Options};

/// Returns the backend that a new netns would get from these options on this node; [`Error::NoBackend`] if there is none.
/// Reads the calling thread's netns and mount namespace, and changes nothing.
pub fn available(options: Options) -> Result<Backend, Error> {
    Ok(netfilter::choose(options.native_nftables, options.forced, &netfilter::probe()?)?)
}
