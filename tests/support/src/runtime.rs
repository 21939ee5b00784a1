//! A real container runtime for tests: containerd or CRI-O in its own namespaces, pods from images of test programs, doubles of
//! agent and API server, and real traffic.
//!
//! The cri tier, the cluster tier and the demo use this module. It asserts nothing and does not change the host.

pub mod agent;
pub mod api_server;
pub mod client;
pub mod cluster;
pub mod conflist;
mod containerd;
pub mod control_plane;
pub mod crio;
pub mod engine;
pub mod gvisor;
mod http;
pub mod image;
pub mod installer;
pub mod mesh;
pub mod multus;
pub mod netns;
pub mod node;
pub mod outside;
pub mod pod;
pub mod programs;
pub mod sandbox;
pub mod service;
pub mod signals;
pub mod trace;
pub mod wait;
