//! Kubernetes' types in values.

use super::kinds::CIDR;
use super::kinds::Kind::{self, Any, CountOrPercent, List, Map, Object, Quantity, StrictInteger, Text, Word};

const REQUIREMENT: Kind = Object(&[("key", Text), ("operator", Text), ("values", List(&Text))]);
const SELECTOR: Kind = Object(&[("matchLabels", Map("", &Text)), ("matchExpressions", List(&REQUIREMENT))]);

const NODE_TERM: Kind = Object(&[("matchExpressions", List(&REQUIREMENT)), ("matchFields", List(&REQUIREMENT))]);
const POD_TERM: Kind = Object(&[
    ("labelSelector", SELECTOR),
    ("matchLabelKeys", List(&Text)),
    ("mismatchLabelKeys", List(&Text)),
    ("namespaceSelector", SELECTOR),
    ("namespaces", List(&Text)),
    ("topologyKey", Text),
]);
const POD_AFFINITY: Kind = Object(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", List(&POD_TERM)),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        List(&Object(&[("weight", StrictInteger(1, Some(100))), ("podAffinityTerm", POD_TERM)])),
    ),
]);
const NODE_AFFINITY: Kind = Object(&[
    ("requiredDuringSchedulingIgnoredDuringExecution", Object(&[("nodeSelectorTerms", List(&NODE_TERM))])),
    (
        "preferredDuringSchedulingIgnoredDuringExecution",
        List(&Object(&[("weight", StrictInteger(1, Some(100))), ("preference", NODE_TERM)])),
    ),
]);
pub(super) const AFFINITY: Kind =
    Object(&[("nodeAffinity", NODE_AFFINITY), ("podAffinity", POD_AFFINITY), ("podAntiAffinity", POD_AFFINITY)]);

pub(super) const TOLERATION: Kind = Object(&[
    ("effect", Word(&["", "NoSchedule", "PreferNoSchedule", "NoExecute"])),
    ("key", Text),
    ("operator", Word(&["", "Exists", "Equal", "Lt", "Gt"])),
    ("tolerationSeconds", StrictInteger(i64::MIN, None)),
    ("value", Text),
]);
/// Kubernetes' own resources, and extended resources, whose names start with a domain.
const QUANTITIES: Kind = Map("^(cpu|memory|ephemeral-storage|hugepages-.+|[^/]+/.+)$", &Quantity);
pub(super) const RESOURCES: Kind = Object(&[("claims", Any), ("limits", QUANTITIES), ("requests", QUANTITIES)]);
pub(super) const SECCOMP_PROFILE: Kind =
    Object(&[("type", Word(&["RuntimeDefault", "Unconfined", "Localhost"])), ("localhostProfile", Text)]);
pub(super) const SELINUX_OPTIONS: Kind = Object(&[("level", Text), ("role", Text), ("type", Text), ("user", Text)]);
pub(super) const UPDATE_STRATEGY: Kind = Object(&[
    ("type", Word(&["RollingUpdate", "OnDelete"])),
    ("rollingUpdate", Object(&[("maxSurge", CountOrPercent), ("maxUnavailable", CountOrPercent)])),
]);
/// A peer of a NetworkPolicy.
pub(super) const PEER: Kind = Object(&[
    ("ipBlock", Object(&[("cidr", CIDR), ("except", List(&CIDR))])),
    ("namespaceSelector", SELECTOR),
    ("podSelector", SELECTOR),
]);
