//! Reads the elements of the anonymous sets that rules name.

use netlink::{self, Attr, Dumped, Socket, Writer, flag};
use nix::errno::Errno;
use ruleset::Port;

use super::super::image::{TableId, family_header};
use super::super::uapi::*;
use super::super::{Error, wire};
use super::attr;

/// The elements of a set.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Elements {
    /// Only ports, sorted.
    Ports(Vec<Port>),
    /// Not only ports.
    Others,
    /// The ruleset changed since the rule was read that names the set.
    Changed,
}

/// Reads the elements of a set in this generation of the ruleset.
pub(super) fn read(
    socket: &mut Socket,
    table: TableId,
    set: &str,
    generation: Option<[u8; 2]>,
) -> Result<Elements, Error> {
    let mut w = Writer::with_capacity(128);
    w.message(message_type(NFNL_SUBSYS_NFTABLES, NFT_MSG_GETSETELEM), flag::REQUEST | flag::DUMP, 1, |w| {
        w.raw(&family_header(Some(table.family)));
        w.text(NFTA_SET_ELEM_LIST_TABLE, table.name);
        w.text(NFTA_SET_ELEM_LIST_SET, set);
    });
    let bytes = w.into_bytes().map_err(Error::Encoding)?;
    let (mut ports, mut same) = (Some(Vec::new()), true);
    let dumped = socket.dump("listing the elements of a set", &bytes, |message| {
        same &= message.body.get(2..4) == generation.as_ref().map(<[u8; 2]>::as_slice);
        for elem in attr(message, NFTA_SET_ELEM_LIST_ELEMENTS)?.into_iter().flat_map(|list| list.attrs()) {
            match (port_of(elem?), &mut ports) {
                (Some(port), Some(ports)) => ports.push(port),
                _ => ports = None,
            }
        }
        Ok(())
    });
    if !is_whole(dumped)? || !same {
        return Ok(Elements::Changed);
    }
    Ok(ports.map_or(Elements::Others, |mut ports| {
        ports.sort_unstable();
        Elements::Ports(ports)
    }))
}

/// Whether the dump of a set that a rule names is consistent. `ENOENT` means that the set was deleted with its rule.
fn is_whole(dumped: Result<Dumped, netlink::Error>) -> Result<bool, Error> {
    match dumped {
        Err(netlink::Error::Refused { refusal, .. }) if refusal.errno == Errno::ENOENT => Ok(false),
        dumped => Ok(dumped? == Dumped::Whole),
    }
}

/// Returns the port of an element that holds nothing else.
fn port_of(elem: Attr<'_>) -> Option<Port> {
    let key = wire::only(elem, NFTA_SET_ELEM_KEY)?;
    let value = wire::only(key, NFTA_DATA_VALUE)?.value;
    value.try_into().ok().map(|bytes| Port(u16::from_be_bytes(bytes)))
}

#[cfg(test)]
mod tests {
    use netlink::Refusal;

    use super::*;

    #[test]
    fn a_set_that_changed_or_vanished_is_read_again() {
        let refused =
            |errno| Err(netlink::Error::Refused { request: "x", refusal: Refusal { seq: 1, errno, text: None } });
        assert!(is_whole(Ok(Dumped::Whole)).unwrap());
        assert!(!is_whole(Ok(Dumped::Interrupted)).unwrap());
        assert!(!is_whole(refused(Errno::ENOENT)).unwrap());
        assert!(is_whole(refused(Errno::ENOMEM)).unwrap_err().is_temporary());
        assert!(is_whole(refused(Errno::EPERM)).unwrap_err().is_denied());
    }
}
