//! A real container runtime for tests: containerd in namespaces of its own, pods from images of our own, the doubles
//! whom the plugin asks, and real traffic.
//!
//! The cri tier, the cluster tier and the demo include this module and drive it; nothing here asserts anything or touches the host.
#![allow(dead_code, unreachable_pub, reason = "several programs include this module, and each uses a part of it")]
#![expect(clippy::disallowed_methods, reason = "effects are all that this module is about")]

pub mod agent;
pub mod api_server;
pub mod client;
pub mod cluster;
pub mod conflist;
pub mod containerd;
mod http;
pub mod image;
pub mod installer;
pub mod mesh;
pub mod netns;
pub mod node;
pub mod outside;
pub mod pod;
pub mod programs;
pub mod sandbox;
pub mod signals;
pub mod trace;
pub mod wait;
