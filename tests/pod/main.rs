//! Pod facts over real sockets.
