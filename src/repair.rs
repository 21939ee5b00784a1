//! Finds pods that started without redirection, and mends, evicts, deletes or labels them.
//!
//! `daemon` and `istio-cni-repair` start it. Deciding is pure; only `act` touches a pod.
