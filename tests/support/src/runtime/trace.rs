//! The path of a request: the programs that it passed, each with the addresses of its connection.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context as _, Error};

/// A program on the path. Test programs respond with `WHO from ADDRESS to ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// The program's name: `app`, `server`, `istio-proxy/inbound`, `istio-proxy/outbound` or `istio-proxy/ready`.
    pub who: String,
    /// The peer's address.
    pub from: SocketAddr,
    /// The local address; for a proxy, the original destination.
    pub to: SocketAddr,
}

/// All hops, in the order in which the request passes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub Vec<Hop>);

impl Trace {
    /// Returns each hop with its destination: `istio-proxy/inbound→10.0.0.2:80`. The source's port varies and is
    /// omitted.
    pub fn hops(&self) -> Vec<(&str, SocketAddr)> {
        self.0.iter().map(|hop| (hop.who.as_str(), hop.to)).collect()
    }
}

impl FromStr for Trace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hops = text.lines().map(|line| hop(line).with_context(|| format!("line {line:?} of the response")));
        let hops = hops.collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(!hops.is_empty(), "the response is empty");
        Ok(Self(hops))
    }
}

fn hop(line: &str) -> Result<Hop, Error> {
    let [who, "from", from, "to", to] = line.split(' ').collect::<Vec<_>>()[..] else {
        anyhow::bail!("not of the form WHO from ADDRESS to ADDRESS")
    };
    Ok(Hop { who: who.to_owned(), from: from.parse()?, to: to.parse()? })
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hops: Vec<String> = self.0.iter().map(|hop| format!("{} ({})", hop.who, hop.to)).collect();
        f.write_str(&hops.join(" → "))
    }
}
