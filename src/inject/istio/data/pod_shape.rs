//! Pods as Go's types name them: what `.Spec` and `.ObjectMeta` of templates can be asked.
//!
//! Fields stand in the order in which Go writes them. A pointer to a scalar is `Any`: absent it is no value. What lies
//! below the types that are spelled out here is seen as JSON has it.

use crate::inject::template::{Field, Kind, Shape};

const fn field(name: &'static str, json: &'static str, kind: Kind) -> Field {
    Field::new(name, json, kind)
}

const fn shape(name: &'static str, fields: &'static [Field]) -> Shape {
    Shape { name, fields, getters: false }
}

/// `metadata`.
pub(super) static OBJECT_META: Shape = shape(
    "v1.ObjectMeta",
    &[
        field("Name", "name", Kind::Text),
        field("GenerateName", "generateName", Kind::Text),
        field("Namespace", "namespace", Kind::Text),
        field("UID", "uid", Kind::Text),
        field("ResourceVersion", "resourceVersion", Kind::Text),
        field("Generation", "generation", Kind::Int),
        field("Labels", "labels", Kind::TEXTS),
        field("Annotations", "annotations", Kind::TEXTS),
        field("OwnerReferences", "ownerReferences", Kind::List(&Kind::Struct(&OWNER_REFERENCE))),
        field("Finalizers", "finalizers", Kind::List(&Kind::Text)),
    ],
);

static OWNER_REFERENCE: Shape = shape(
    "v1.OwnerReference",
    &[
        field("APIVersion", "apiVersion", Kind::Text),
        field("Kind", "kind", Kind::Text),
        field("Name", "name", Kind::Text),
        field("UID", "uid", Kind::Text),
        field("Controller", "controller", Kind::Any),
    ],
);

/// `spec`.
pub(super) static POD_SPEC: Shape = shape(
    "v1.PodSpec",
    &[
        field("Volumes", "volumes", Kind::List(&Kind::Struct(&VOLUME))),
        field("InitContainers", "initContainers", CONTAINERS),
        field("Containers", "containers", CONTAINERS),
        field("EphemeralContainers", "ephemeralContainers", CONTAINERS),
        field("RestartPolicy", "restartPolicy", Kind::Text),
        field("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Kind::Any),
        field("ActiveDeadlineSeconds", "activeDeadlineSeconds", Kind::Any),
        field("DNSPolicy", "dnsPolicy", Kind::Text),
        field("NodeSelector", "nodeSelector", Kind::TEXTS),
        field("ServiceAccountName", "serviceAccountName", Kind::Text),
        field("DeprecatedServiceAccount", "serviceAccount", Kind::Text),
        field("AutomountServiceAccountToken", "automountServiceAccountToken", Kind::Any),
        field("NodeName", "nodeName", Kind::Text),
        field("HostNetwork", "hostNetwork", Kind::Bool),
        field("HostPID", "hostPID", Kind::Bool),
        field("HostIPC", "hostIPC", Kind::Bool),
        field("ShareProcessNamespace", "shareProcessNamespace", Kind::Any),
        field("SecurityContext", "securityContext", Kind::Pointer(&POD_SECURITY_CONTEXT)),
        field("ImagePullSecrets", "imagePullSecrets", Kind::List(&Kind::Struct(&REFERENCE))),
        field("Hostname", "hostname", Kind::Text),
        field("Subdomain", "subdomain", Kind::Text),
        field("Affinity", "affinity", Kind::Any),
        field("SchedulerName", "schedulerName", Kind::Text),
        field("Tolerations", "tolerations", Kind::List(&Kind::Any)),
        field("HostAliases", "hostAliases", Kind::List(&Kind::Any)),
        field("PriorityClassName", "priorityClassName", Kind::Text),
        field("Priority", "priority", Kind::Any),
        field("DNSConfig", "dnsConfig", Kind::Pointer(&DNS_CONFIG)),
        field("ReadinessGates", "readinessGates", Kind::List(&Kind::Any)),
        field("RuntimeClassName", "runtimeClassName", Kind::Any),
        field("EnableServiceLinks", "enableServiceLinks", Kind::Any),
        field("PreemptionPolicy", "preemptionPolicy", Kind::Any),
        field("Overhead", "overhead", Kind::Map(&Kind::Any)),
        field("TopologySpreadConstraints", "topologySpreadConstraints", Kind::List(&Kind::Any)),
        field("SetHostnameAsFQDN", "setHostnameAsFQDN", Kind::Any),
        field("OS", "os", Kind::Any),
        field("HostUsers", "hostUsers", Kind::Any),
        field("SchedulingGates", "schedulingGates", Kind::List(&Kind::Any)),
        field("ResourceClaims", "resourceClaims", Kind::List(&Kind::Any)),
    ],
);

const CONTAINERS: Kind = Kind::List(&Kind::Struct(&CONTAINER));

static CONTAINER: Shape = shape(
    "v1.Container",
    &[
        field("Name", "name", Kind::Text),
        field("Image", "image", Kind::Text),
        field("Command", "command", Kind::List(&Kind::Text)),
        field("Args", "args", Kind::List(&Kind::Text)),
        field("WorkingDir", "workingDir", Kind::Text),
        field("Ports", "ports", Kind::List(&Kind::Struct(&CONTAINER_PORT))),
        field("EnvFrom", "envFrom", Kind::List(&Kind::Any)),
        field("Env", "env", Kind::List(&Kind::Struct(&VARIABLE))),
        field("Resources", "resources", Kind::Struct(&RESOURCES)),
        field("RestartPolicy", "restartPolicy", Kind::Any),
        field("VolumeMounts", "volumeMounts", Kind::List(&Kind::Struct(&VOLUME_MOUNT))),
        field("VolumeDevices", "volumeDevices", Kind::List(&Kind::Any)),
        field("LivenessProbe", "livenessProbe", Kind::Pointer(&PROBE)),
        field("ReadinessProbe", "readinessProbe", Kind::Pointer(&PROBE)),
        field("StartupProbe", "startupProbe", Kind::Pointer(&PROBE)),
        field("Lifecycle", "lifecycle", Kind::Any),
        field("TerminationMessagePath", "terminationMessagePath", Kind::Text),
        field("TerminationMessagePolicy", "terminationMessagePolicy", Kind::Text),
        field("ImagePullPolicy", "imagePullPolicy", Kind::Text),
        field("SecurityContext", "securityContext", Kind::Pointer(&SECURITY_CONTEXT)),
        field("Stdin", "stdin", Kind::Bool),
        field("StdinOnce", "stdinOnce", Kind::Bool),
        field("TTY", "tty", Kind::Bool),
    ],
);

static CONTAINER_PORT: Shape = shape(
    "v1.ContainerPort",
    &[
        field("Name", "name", Kind::Text),
        field("HostPort", "hostPort", Kind::Int),
        field("ContainerPort", "containerPort", Kind::Int),
        field("Protocol", "protocol", Kind::Text),
        field("HostIP", "hostIP", Kind::Text),
    ],
);

static VARIABLE: Shape = shape(
    "v1.EnvVar",
    &[
        field("Name", "name", Kind::Text),
        field("Value", "value", Kind::Text),
        field("ValueFrom", "valueFrom", Kind::Any),
    ],
);

static RESOURCES: Shape = shape(
    "v1.ResourceRequirements",
    &[
        field("Limits", "limits", Kind::Map(&Kind::Any)),
        field("Requests", "requests", Kind::Map(&Kind::Any)),
        field("Claims", "claims", Kind::List(&Kind::Any)),
    ],
);

static VOLUME_MOUNT: Shape = shape(
    "v1.VolumeMount",
    &[
        field("Name", "name", Kind::Text),
        field("ReadOnly", "readOnly", Kind::Bool),
        field("MountPath", "mountPath", Kind::Text),
        field("SubPath", "subPath", Kind::Text),
        field("MountPropagation", "mountPropagation", Kind::Any),
        field("SubPathExpr", "subPathExpr", Kind::Text),
    ],
);

static VOLUME: Shape = shape(
    "v1.Volume",
    &[
        field("Name", "name", Kind::Text),
        field("HostPath", "hostPath", Kind::Any),
        field("EmptyDir", "emptyDir", Kind::Any),
        field("Secret", "secret", Kind::Any),
        field("ConfigMap", "configMap", Kind::Any),
        field("DownwardAPI", "downwardAPI", Kind::Any),
        field("Projected", "projected", Kind::Any),
        field("PersistentVolumeClaim", "persistentVolumeClaim", Kind::Any),
        field("CSI", "csi", Kind::Any),
        field("Ephemeral", "ephemeral", Kind::Any),
    ],
);

static PROBE: Shape = shape(
    "v1.Probe",
    &[
        field("Exec", "exec", Kind::Any),
        field("HTTPGet", "httpGet", Kind::Pointer(&HTTP_GET)),
        field("TCPSocket", "tcpSocket", Kind::Any),
        field("GRPC", "grpc", Kind::Any),
        field("InitialDelaySeconds", "initialDelaySeconds", Kind::Int),
        field("TimeoutSeconds", "timeoutSeconds", Kind::Int),
        field("PeriodSeconds", "periodSeconds", Kind::Int),
        field("SuccessThreshold", "successThreshold", Kind::Int),
        field("FailureThreshold", "failureThreshold", Kind::Int),
        field("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Kind::Any),
    ],
);

static HTTP_GET: Shape = shape(
    "v1.HTTPGetAction",
    &[
        field("Path", "path", Kind::Text),
        field("Port", "port", Kind::Any),
        field("Host", "host", Kind::Text),
        field("Scheme", "scheme", Kind::Text),
        field("HTTPHeaders", "httpHeaders", Kind::List(&Kind::Any)),
    ],
);

static POD_SECURITY_CONTEXT: Shape = shape(
    "v1.PodSecurityContext",
    &[
        field("SELinuxOptions", "seLinuxOptions", Kind::Any),
        field("WindowsOptions", "windowsOptions", Kind::Any),
        field("RunAsUser", "runAsUser", Kind::Any),
        field("RunAsGroup", "runAsGroup", Kind::Any),
        field("RunAsNonRoot", "runAsNonRoot", Kind::Any),
        field("SupplementalGroups", "supplementalGroups", Kind::List(&Kind::Int)),
        field("FSGroup", "fsGroup", Kind::Any),
        field("Sysctls", "sysctls", Kind::List(&Kind::Any)),
        field("FSGroupChangePolicy", "fsGroupChangePolicy", Kind::Any),
        field("SeccompProfile", "seccompProfile", Kind::Any),
    ],
);

static SECURITY_CONTEXT: Shape = shape(
    "v1.SecurityContext",
    &[
        field("Capabilities", "capabilities", Kind::Any),
        field("Privileged", "privileged", Kind::Any),
        field("SELinuxOptions", "seLinuxOptions", Kind::Any),
        field("RunAsUser", "runAsUser", Kind::Any),
        field("RunAsGroup", "runAsGroup", Kind::Any),
        field("RunAsNonRoot", "runAsNonRoot", Kind::Any),
        field("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", Kind::Any),
        field("AllowPrivilegeEscalation", "allowPrivilegeEscalation", Kind::Any),
        field("ProcMount", "procMount", Kind::Any),
        field("SeccompProfile", "seccompProfile", Kind::Any),
    ],
);

static REFERENCE: Shape = shape("v1.LocalObjectReference", &[field("Name", "name", Kind::Text)]);

static DNS_CONFIG: Shape = shape(
    "v1.PodDNSConfig",
    &[
        field("Nameservers", "nameservers", Kind::List(&Kind::Text)),
        field("Searches", "searches", Kind::List(&Kind::Text)),
        field("Options", "options", Kind::List(&Kind::Any)),
    ],
);
