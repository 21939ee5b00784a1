//! Tests of the ports that suites assign to programs.

use std::collections::BTreeSet;
use std::net::{Ipv4Addr, TcpListener};

use test_servers::port::{ALL, free};

#[test]
fn no_port_is_assigned_twice_or_in_use() {
    let taken = free() + 1;
    let _listener = TcpListener::bind((Ipv4Addr::LOCALHOST, taken)).unwrap();
    let ports: BTreeSet<u16> = (0..500).map(|_| free()).collect();
    assert_eq!(ports.len(), 500);
    assert!(!ports.contains(&taken), "{taken}");
    assert!(ports.iter().all(|port| ALL.contains(port)), "{ports:?}");
}
