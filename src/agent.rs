//! The node's socket: answers the plugin with facts of this node's pods, and takes its log lines.
//!
//! `daemon` starts it, `pod::agent` in the plugin is its client.
