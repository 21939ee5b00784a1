//! The way of one request: who took part, whom each saw, and whom each believed to be meant.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use anyhow::{Context as _, Error};

/// One on the way. Test programs answer with `WHO from ADDRESS to ADDRESS`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hop {
    /// `app`, `server`, `istio-proxy/inbound`, `istio-proxy/outbound`, `istio-proxy/ready`.
    pub who: String,
    /// The other end of the connection.
    pub from: SocketAddr,
    /// Its own end; for a proxy, the original destination.
    pub to: SocketAddr,
}

/// All on the way, the first one asked first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trace(pub Vec<Hop>);

impl Trace {
    /// Who took part and who was meant: `istio-proxy/inbound→10.0.0.2:80`. What varies, the asker's port, is left out.
    pub fn hops(&self) -> Vec<(&str, SocketAddr)> {
        self.0.iter().map(|hop| (hop.who.as_str(), hop.to)).collect()
    }
}

impl FromStr for Trace {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let hops = text.lines().map(|line| hop(line).with_context(|| format!("an answer's line {line:?}")));
        let hops = hops.collect::<Result<Vec<_>, _>>()?;
        anyhow::ensure!(!hops.is_empty(), "the answer is empty");
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
