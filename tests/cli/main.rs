//! The binaries from outside: standard input to standard output, exit codes, and the shape of the sources.

mod layers;
mod plugin;
