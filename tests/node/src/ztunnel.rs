//! A double of ztunnel's ZDS client, which responds to each request as Istio's does, and a client that sends arbitrary
//! packets.
//!
//! The double starts no proxies. It records the pods for which ztunnel would start one, with the descriptors that it
//! has received.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::JoinHandle;
use std::time::Duration;

use istio_cni::ambient::zds::message::wire::workload_request::Payload;
use istio_cni::ambient::zds::message::wire::{self, Version, WorkloadInfo, WorkloadRequest, WorkloadResponse};
use nix::sys::socket::{
    AddressFamily, ControlMessage, ControlMessageOwned, MsgFlags, SockFlag, SockType, UnixAddr, connect, recvmsg,
    sendmsg, socket,
};
use prost::Message as _;

use test_support::DEADLINE;

/// The size of ztunnel's buffer in bytes.
const BUFFER: usize = 1024;
/// The pause before the second attempt to connect. It doubles with each attempt, up to the longest pause.
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);

/// A ZDS client that sends arbitrary packets.
pub struct Raw(UnixStream);

impl Raw {
    pub fn connect(path: &Path) -> io::Result<Self> {
        let socket = socket(AddressFamily::Unix, SockType::SeqPacket, SockFlag::SOCK_CLOEXEC, None)?;
        connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
        let socket = UnixStream::from(socket);
        socket.set_read_timeout(Some(DEADLINE))?;
        Ok(Self(socket))
    }

    /// Connects and sends the `ZdsHello`.
    pub fn greet(path: &Path) -> Self {
        let raw = Self::connect(path).unwrap();
        raw.send(&hello()).unwrap();
        raw
    }

    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        self.send_with(packet, &[])
    }

    pub fn send_with(&self, packet: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
        let rights = [ControlMessage::ScmRights(descriptors)];
        let control = if descriptors.is_empty() { &[] } else { &rights[..] };
        sendmsg::<()>(self.0.as_raw_fd(), &[IoSlice::new(packet)], control, MsgFlags::MSG_NOSIGNAL, None)?;
        Ok(())
    }

    /// Receives a packet and its descriptors; an empty packet is the end of the connection.
    pub fn receive(&self) -> io::Result<Packet> {
        let (mut buffer, mut control) = ([0; BUFFER], nix::cmsg_space!([RawFd; 4]));
        let mut parts = [IoSliceMut::new(&mut buffer)];
        let flags = MsgFlags::MSG_CMSG_CLOEXEC;
        let message = recvmsg::<()>(self.0.as_raw_fd(), &mut parts, Some(&mut control), flags)?;
        let is_truncated = message.flags.intersects(MsgFlags::MSG_TRUNC | MsgFlags::MSG_CTRUNC);
        let size = message.bytes;
        let mut descriptors = Vec::new();
        for control in message.cmsgs()? {
            if let ControlMessageOwned::ScmRights(numbers) = control {
                descriptors.extend(numbers.into_iter().map(own));
            }
        }
        let descriptors = descriptors.into_iter().collect::<io::Result<_>>()?;
        Ok(Packet { bytes: buffer[..size].to_vec(), descriptors, is_truncated })
    }

    /// Waits for the end of the connection and returns the number of packets before it.
    pub fn until_closed(&self) -> usize {
        (0..).find(|_| self.receive().map_or_else(|error| is_reset(&error), |packet| packet.bytes.is_empty())).unwrap()
    }
}

fn is_reset(error: &io::Error) -> bool {
    assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
    true
}

/// Converts the number of a received descriptor to an owned `File`, by reopening the descriptor.
fn own(number: RawFd) -> io::Result<File> {
    let file = File::open(format!("/proc/self/fd/{number}"));
    nix::unistd::close(number)?;
    file
}

/// A packet as it was received.
#[derive(Debug)]
pub struct Packet {
    pub bytes: Vec<u8>,
    pub descriptors: Vec<File>,
    pub is_truncated: bool,
}

pub fn hello() -> Vec<u8> {
    wire::ZdsHello { version: Version::V1 as i32 }.encode_to_vec()
}

/// Returns an acknowledgement, which reports an error if `error` is not empty.
pub fn ack(error: &str) -> Vec<u8> {
    let payload = Some(wire::workload_response::Payload::Ack(wire::Ack { error: error.to_owned() }));
    WorkloadResponse { payload }.encode_to_vec()
}

/// A pod for which ztunnel would run a proxy.
#[derive(Debug, Clone)]
pub struct Proxy {
    pub workload: WorkloadInfo,
    /// Device and inode of the netns.
    pub netns: (u64, u64),
    /// The descriptor of the netns, open as long as the proxy runs.
    _file: Arc<File>,
}

/// The state of the double, and what it has received so far.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// Running proxies by UID.
    pub proxies: BTreeMap<String, Proxy>,
    /// Pods whose proxy could not be started.
    pub pending: BTreeSet<String>,
    /// The UIDs of all proxies that were drained.
    pub drained: Vec<String>,
    /// The requests as `add u1`, of all connections.
    pub requests: Vec<String>,
    /// The number of connections so far.
    pub connections: usize,
    /// The pods that the current snapshot has named so far; `None` after the snapshot's end.
    named: Option<BTreeSet<String>>,
    /// Why ztunnel would have exited; `None` if it would still run.
    pub exit: Option<String>,
}

impl Seen {
    /// Whether ztunnel's readiness probe succeeds.
    pub fn is_ready(&self) -> bool {
        self.connections > 0 && self.named.is_none() && self.pending.is_empty()
    }

    /// Returns the number of requests of a kind for a pod.
    pub fn count(&self, request: &str) -> usize {
        self.requests.iter().filter(|seen| *seen == request).count()
    }
}

/// The behaviour of the double that the test has set.
#[derive(Debug, Default)]
struct Orders {
    /// Pods whose proxy cannot be started.
    refused: BTreeSet<String>,
    /// Whether responses are held back.
    holds: bool,
    is_over: bool,
}

#[derive(Default)]
struct Shared {
    seen: Mutex<Seen>,
    orders: Mutex<Orders>,
    changed: Condvar,
    connection: Mutex<Option<UnixStream>>,
}

/// What follows the end of a connection.
enum End {
    Reconnect,
    Exit(String),
}

/// A running double, which ends when it is dropped.
pub struct Ztunnel {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

impl Ztunnel {
    /// Starts a double, which connects as soon as a server listens.
    pub fn start(path: &Path) -> Self {
        let shared = Arc::new(Shared::default());
        let (path, own) = (path.to_owned(), Arc::clone(&shared));
        let thread = Some(std::thread::spawn(move || own.run(&path)));
        Self { shared, thread }
    }

    pub fn seen(&self) -> Seen {
        self.shared.seen.lock().unwrap().clone()
    }

    /// Makes the start of a pod's proxy fail.
    pub fn refuse(&self, uid: &str) {
        self.orders().refused.insert(uid.to_owned());
    }

    /// Holds responses back, or sends those that were held back.
    pub fn hold(&self, holds: bool) {
        self.orders().holds = holds;
        self.shared.changed.notify_all();
    }

    /// Closes the connection; the double reconnects at once.
    pub fn disconnect(&self) {
        if let Some(socket) = &*self.shared.connection.lock().unwrap() {
            let _ = socket.shutdown(std::net::Shutdown::Both);
        }
    }

    fn orders(&self) -> MutexGuard<'_, Orders> {
        self.shared.orders.lock().unwrap()
    }
}

impl Drop for Ztunnel {
    fn drop(&mut self) {
        self.orders().is_over = true;
        self.shared.changed.notify_all();
        self.disconnect();
        let ended = self.thread.take().unwrap().join();
        if !std::thread::panicking() {
            ended.unwrap();
        }
    }
}

impl Shared {
    fn run(&self, path: &Path) {
        let mut pause = FIRST_PAUSE;
        while !self.is_over() {
            let Ok(raw) = Raw::connect(path).and_then(|raw| raw.send(&hello()).map(|()| raw)) else {
                let orders = self.orders.lock().unwrap();
                drop(self.changed.wait_timeout_while(orders, pause, |orders| !orders.is_over).unwrap());
                pause = (pause * 2).min(LONGEST_PAUSE);
                continue;
            };
            pause = FIRST_PAUSE;
            // A new connection begins with a new snapshot. The proxies of the previous connection keep running.
            let mut seen = self.seen.lock().unwrap();
            seen.pending.clear();
            seen.named = Some(BTreeSet::new());
            seen.connections += 1;
            drop(seen);
            *self.connection.lock().unwrap() = Some(raw.0.try_clone().unwrap());
            let end = self.serve(&raw);
            *self.connection.lock().unwrap() = None;
            if let End::Exit(why) = end {
                self.seen.lock().unwrap().exit = Some(why);
                return;
            }
        }
    }

    fn is_over(&self) -> bool {
        self.orders.lock().unwrap().is_over
    }

    /// Responds to requests until the connection ends.
    fn serve(&self, raw: &Raw) -> End {
        while !self.is_over() {
            let packet = match raw.receive() {
                Ok(packet) if packet.bytes.is_empty() => return End::Reconnect,
                Ok(packet) => packet,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(_) => return End::Reconnect,
            };
            let (payload, netns) = match read(packet) {
                Ok(request) => request,
                Err(error) => {
                    let _ = raw.send(&ack(&format!("failure to read message : {error}")));
                    return End::Reconnect;
                }
            };
            let response = self.process(payload, netns);
            self.until_released();
            let error = response.as_ref().err().map_or("", |(error, _)| error);
            let sent = raw.send(&ack(error));
            match response {
                Err((error, true)) => return End::Exit(error),
                _ if sent.is_err() => return End::Reconnect,
                _ => {}
            }
        }
        End::Reconnect
    }

    fn until_released(&self) {
        let orders = self.orders.lock().unwrap();
        drop(self.changed.wait_while(orders, |orders| orders.holds && !orders.is_over).unwrap());
    }

    /// Handles a request. An error is ztunnel's error message, and whether ztunnel would exit.
    fn process(&self, payload: Payload, netns: Option<File>) -> Result<(), (String, bool)> {
        let seen = &mut *self.seen.lock().unwrap();
        let failed = |why: &str| Err((format!("failure to process message : {why}"), true));
        match (payload, netns) {
            (Payload::Add(add), Some(file)) => {
                seen.requests.push(format!("add {}", add.uid));
                let Some(workload) = add.workload_info else { return failed("no workload info") };
                let found = file.metadata().unwrap();
                let proxy = Proxy { workload, netns: (found.dev(), found.ino()), _file: Arc::new(file) };
                if let Some(named) = &mut seen.named {
                    named.insert(add.uid.clone());
                }
                seen.start(add.uid, proxy, &self.orders.lock().unwrap().refused)
            }
            (Payload::Keep(keep), None) => {
                seen.requests.push(format!("keep {}", keep.uid));
                match &mut seen.named {
                    Some(named) => drop(named.insert(keep.uid)),
                    None => return failed("keep after the snapshot"),
                }
                Ok(())
            }
            (Payload::Del(del), None) => {
                seen.requests.push(format!("del {}", del.uid));
                seen.pending.remove(&del.uid);
                match &mut seen.named {
                    Some(named) => drop(named.remove(&del.uid)),
                    None => seen.drain(&del.uid),
                }
                Ok(())
            }
            (Payload::SnapshotSent(_), None) => {
                seen.requests.push("snapshot_sent".to_owned());
                let Some(named) = seen.named.take() else { return failed("second snapshot") };
                let unnamed: Vec<String> = seen.proxies.keys().filter(|uid| !named.contains(*uid)).cloned().collect();
                unnamed.iter().for_each(|uid| seen.drain(uid));
                Ok(())
            }
            (payload, netns) => unreachable!("{payload:?} with {netns:?} was refused when it was read"),
        }
    }
}

impl Seen {
    /// Records a pod's proxy as started, unless the pod already has one in this netns.
    fn start(&mut self, uid: String, proxy: Proxy, refused: &BTreeSet<String>) -> Result<(), (String, bool)> {
        if self.proxies.get(&uid).is_some_and(|running| running.netns == proxy.netns) {
            return Ok(());
        }
        self.drain(&uid);
        if refused.contains(&uid) {
            self.pending.insert(uid);
            return Err(("failure to start proxy : the address is in use".to_owned(), false));
        }
        self.pending.remove(&uid);
        self.proxies.insert(uid, proxy);
        Ok(())
    }

    fn drain(&mut self, uid: &str) {
        if self.proxies.remove(uid).is_some() {
            self.drained.push(uid.to_owned());
        }
    }
}

/// Decodes a request, which has one descriptor if it adds a pod, and none otherwise.
fn read(packet: Packet) -> Result<(Payload, Option<File>), String> {
    if packet.is_truncated {
        return Err("truncated".to_owned());
    }
    let request = WorkloadRequest::decode(&*packet.bytes).map_err(|error| error.to_string())?;
    let payload = request.payload.ok_or("no payload")?;
    let mut descriptors = packet.descriptors;
    match (descriptors.len(), matches!(payload, Payload::Add(_))) {
        (1, true) => Ok((payload, descriptors.pop())),
        (0, false) => Ok((payload, None)),
        (count, _) => Err(format!("{count} descriptors")),
    }
}
