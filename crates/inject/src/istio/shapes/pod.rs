//! Go's structs of a pod, with the field names that templates use.
//!
//! Fields that no template of any Istio release uses, such as the sources of most volumes, are untyped and have the
//! names of their JSON keys.

use gotemplate::{Field, Kind, Shape};

const fn shape(name: &'static str, fields: &'static [Field]) -> Shape {
    Shape { name, fields, getters: false }
}

const fn f(name: &'static str, json: &'static str, kind: Kind) -> Field {
    Field { name, json, kind }
}

/// The metadata of a pod.
pub static OBJECT_META: Shape = shape(
    "metav1.ObjectMeta",
    &[
        f("Name", "name", Kind::Text),
        f("GenerateName", "generateName", Kind::Text),
        f("Namespace", "namespace", Kind::Text),
        f("SelfLink", "selfLink", Kind::Text),
        f("UID", "uid", Kind::Text),
        f("ResourceVersion", "resourceVersion", Kind::Text),
        f("Generation", "generation", Kind::Int),
        f("CreationTimestamp", "creationTimestamp", Kind::Text),
        f("DeletionTimestamp", "deletionTimestamp", Kind::Any),
        f("DeletionGracePeriodSeconds", "deletionGracePeriodSeconds", Kind::MaybeInt),
        f("Labels", "labels", Kind::TEXTS),
        f("Annotations", "annotations", Kind::TEXTS),
        f("OwnerReferences", "ownerReferences", Kind::List(&Kind::Struct(&OWNER_REFERENCE))),
        f("Finalizers", "finalizers", Kind::List(&Kind::Text)),
        f("ManagedFields", "managedFields", Kind::List(&Kind::Any)),
    ],
);

/// The spec of a pod.
pub static POD_SPEC: Shape = shape(
    "v1.PodSpec",
    &[
        f("Volumes", "volumes", Kind::List(&Kind::Struct(&VOLUME))),
        f("InitContainers", "initContainers", Kind::List(&Kind::Struct(&CONTAINER))),
        f("Containers", "containers", Kind::List(&Kind::Struct(&CONTAINER))),
        f("EphemeralContainers", "ephemeralContainers", Kind::List(&Kind::Any)),
        f("RestartPolicy", "restartPolicy", Kind::Text),
        f("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Kind::MaybeInt),
        f("ActiveDeadlineSeconds", "activeDeadlineSeconds", Kind::MaybeInt),
        f("DNSPolicy", "dnsPolicy", Kind::Text),
        f("NodeSelector", "nodeSelector", Kind::TEXTS),
        f("ServiceAccountName", "serviceAccountName", Kind::Text),
        f("DeprecatedServiceAccount", "serviceAccount", Kind::Text),
        f("AutomountServiceAccountToken", "automountServiceAccountToken", Kind::Any),
        f("NodeName", "nodeName", Kind::Text),
        f("HostNetwork", "hostNetwork", Kind::Bool),
        f("HostPID", "hostPID", Kind::Bool),
        f("HostIPC", "hostIPC", Kind::Bool),
        f("ShareProcessNamespace", "shareProcessNamespace", Kind::Any),
        f("SecurityContext", "securityContext", Kind::Pointer(&POD_SECURITY_CONTEXT)),
        f("ImagePullSecrets", "imagePullSecrets", Kind::List(&Kind::Struct(&LOCAL_OBJECT_REFERENCE))),
        f("Hostname", "hostname", Kind::Text),
        f("Subdomain", "subdomain", Kind::Text),
        f("Affinity", "affinity", Kind::Any),
        f("SchedulerName", "schedulerName", Kind::Text),
        f("Tolerations", "tolerations", Kind::List(&Kind::Struct(&TOLERATION))),
        f("HostAliases", "hostAliases", Kind::List(&Kind::Struct(&HOST_ALIAS))),
        f("PriorityClassName", "priorityClassName", Kind::Text),
        f("Priority", "priority", Kind::MaybeInt),
        f("DNSConfig", "dnsConfig", Kind::Pointer(&POD_DNS_CONFIG)),
        f("ReadinessGates", "readinessGates", Kind::List(&Kind::Any)),
        f("RuntimeClassName", "runtimeClassName", Kind::Any),
        f("EnableServiceLinks", "enableServiceLinks", Kind::Any),
        f("PreemptionPolicy", "preemptionPolicy", Kind::Any),
        f("Overhead", "overhead", Kind::TEXTS),
        f("TopologySpreadConstraints", "topologySpreadConstraints", Kind::List(&Kind::Any)),
        f("SetHostnameAsFQDN", "setHostnameAsFQDN", Kind::Any),
        f("OS", "os", Kind::Any),
        f("HostUsers", "hostUsers", Kind::Any),
        f("SchedulingGates", "schedulingGates", Kind::List(&Kind::Any)),
        f("ResourceClaims", "resourceClaims", Kind::List(&Kind::Any)),
        f("Resources", "resources", Kind::Pointer(&RESOURCE_REQUIREMENTS)),
        f("HostnameOverride", "hostnameOverride", Kind::Any),
        f("SchedulingGroup", "schedulingGroup", Kind::Any),
    ],
);

/// A container.
pub static CONTAINER: Shape = shape(
    "v1.Container",
    &[
        f("Name", "name", Kind::Text),
        f("Image", "image", Kind::Text),
        f("Command", "command", Kind::List(&Kind::Text)),
        f("Args", "args", Kind::List(&Kind::Text)),
        f("WorkingDir", "workingDir", Kind::Text),
        f("Ports", "ports", Kind::List(&Kind::Struct(&CONTAINER_PORT))),
        f("EnvFrom", "envFrom", Kind::List(&Kind::Struct(&ENV_FROM_SOURCE))),
        f("Env", "env", Kind::List(&Kind::Struct(&ENV_VAR))),
        f("Resources", "resources", Kind::Struct(&RESOURCE_REQUIREMENTS)),
        f("ResizePolicy", "resizePolicy", Kind::List(&Kind::Any)),
        f("RestartPolicy", "restartPolicy", Kind::Any),
        f("RestartPolicyRules", "restartPolicyRules", Kind::List(&Kind::Any)),
        f("VolumeMounts", "volumeMounts", Kind::List(&Kind::Struct(&VOLUME_MOUNT))),
        f("VolumeDevices", "volumeDevices", Kind::List(&Kind::Any)),
        f("LivenessProbe", "livenessProbe", Kind::Pointer(&PROBE)),
        f("ReadinessProbe", "readinessProbe", Kind::Pointer(&PROBE)),
        f("StartupProbe", "startupProbe", Kind::Pointer(&PROBE)),
        f("Lifecycle", "lifecycle", Kind::Pointer(&LIFECYCLE)),
        f("TerminationMessagePath", "terminationMessagePath", Kind::Text),
        f("TerminationMessagePolicy", "terminationMessagePolicy", Kind::Text),
        f("ImagePullPolicy", "imagePullPolicy", Kind::Text),
        f("SecurityContext", "securityContext", Kind::Pointer(&SECURITY_CONTEXT)),
        f("Stdin", "stdin", Kind::Bool),
        f("StdinOnce", "stdinOnce", Kind::Bool),
        f("TTY", "tty", Kind::Bool),
    ],
);

static CONTAINER_PORT: Shape = shape(
    "v1.ContainerPort",
    &[
        f("Name", "name", Kind::Text),
        f("HostPort", "hostPort", Kind::Int),
        f("ContainerPort", "containerPort", Kind::Int),
        f("Protocol", "protocol", Kind::Text),
        f("HostIP", "hostIP", Kind::Text),
    ],
);

static ENV_VAR: Shape = shape(
    "v1.EnvVar",
    &[
        f("Name", "name", Kind::Text),
        f("Value", "value", Kind::Text),
        f("ValueFrom", "valueFrom", Kind::Pointer(&ENV_VAR_SOURCE)),
    ],
);

static ENV_VAR_SOURCE: Shape = shape(
    "v1.EnvVarSource",
    &[
        f("FieldRef", "fieldRef", Kind::Pointer(&OBJECT_FIELD_SELECTOR)),
        f("ResourceFieldRef", "resourceFieldRef", Kind::Any),
        f("ConfigMapKeyRef", "configMapKeyRef", Kind::Any),
        f("SecretKeyRef", "secretKeyRef", Kind::Any),
        f("FileKeyRef", "fileKeyRef", Kind::Any),
    ],
);

static OBJECT_FIELD_SELECTOR: Shape = shape(
    "v1.ObjectFieldSelector",
    &[f("APIVersion", "apiVersion", Kind::Text), f("FieldPath", "fieldPath", Kind::Text)],
);

static ENV_FROM_SOURCE: Shape = shape(
    "v1.EnvFromSource",
    &[
        f("Prefix", "prefix", Kind::Text),
        f("ConfigMapRef", "configMapRef", Kind::Any),
        f("SecretRef", "secretRef", Kind::Any),
    ],
);

static RESOURCE_REQUIREMENTS: Shape = shape(
    "v1.ResourceRequirements",
    &[
        f("Limits", "limits", Kind::TEXTS),
        f("Requests", "requests", Kind::TEXTS),
        f("Claims", "claims", Kind::List(&Kind::Any)),
    ],
);

static VOLUME_MOUNT: Shape = shape(
    "v1.VolumeMount",
    &[
        f("Name", "name", Kind::Text),
        f("ReadOnly", "readOnly", Kind::Bool),
        f("RecursiveReadOnly", "recursiveReadOnly", Kind::Any),
        f("MountPath", "mountPath", Kind::Text),
        f("SubPath", "subPath", Kind::Text),
        f("MountPropagation", "mountPropagation", Kind::Any),
        f("SubPathExpr", "subPathExpr", Kind::Text),
    ],
);

static PROBE: Shape = shape(
    "v1.Probe",
    &[
        f("Exec", "exec", Kind::Pointer(&EXEC_ACTION)),
        f("HTTPGet", "httpGet", Kind::Pointer(&HTTP_GET_ACTION)),
        f("TCPSocket", "tcpSocket", Kind::Pointer(&TCP_SOCKET_ACTION)),
        f("GRPC", "grpc", Kind::Pointer(&GRPC_ACTION)),
        f("InitialDelaySeconds", "initialDelaySeconds", Kind::Int),
        f("TimeoutSeconds", "timeoutSeconds", Kind::Int),
        f("PeriodSeconds", "periodSeconds", Kind::Int),
        f("SuccessThreshold", "successThreshold", Kind::Int),
        f("FailureThreshold", "failureThreshold", Kind::Int),
        f("TerminationGracePeriodSeconds", "terminationGracePeriodSeconds", Kind::MaybeInt),
    ],
);

static LIFECYCLE: Shape = shape(
    "v1.Lifecycle",
    &[
        f("PostStart", "postStart", Kind::Pointer(&LIFECYCLE_HANDLER)),
        f("PreStop", "preStop", Kind::Pointer(&LIFECYCLE_HANDLER)),
        f("StopSignal", "stopSignal", Kind::Any),
    ],
);

static LIFECYCLE_HANDLER: Shape = shape(
    "v1.LifecycleHandler",
    &[
        f("Exec", "exec", Kind::Pointer(&EXEC_ACTION)),
        f("HTTPGet", "httpGet", Kind::Pointer(&HTTP_GET_ACTION)),
        f("TCPSocket", "tcpSocket", Kind::Pointer(&TCP_SOCKET_ACTION)),
        f("Sleep", "sleep", Kind::Any),
    ],
);

static HTTP_GET_ACTION: Shape = shape(
    "v1.HTTPGetAction",
    &[
        f("Path", "path", Kind::Text),
        f("Port", "port", Kind::Any),
        f("Host", "host", Kind::Text),
        f("Scheme", "scheme", Kind::Text),
        f("HTTPHeaders", "httpHeaders", Kind::List(&Kind::Struct(&HTTP_HEADER))),
    ],
);

static TCP_SOCKET_ACTION: Shape =
    shape("v1.TCPSocketAction", &[f("Port", "port", Kind::Any), f("Host", "host", Kind::Text)]);

static GRPC_ACTION: Shape = shape("v1.GRPCAction", &[f("Port", "port", Kind::Int), f("Service", "service", Kind::Any)]);

static EXEC_ACTION: Shape = shape("v1.ExecAction", &[f("Command", "command", Kind::List(&Kind::Text))]);

static HTTP_HEADER: Shape = shape("v1.HTTPHeader", &[f("Name", "name", Kind::Text), f("Value", "value", Kind::Text)]);

static SECURITY_CONTEXT: Shape = shape(
    "v1.SecurityContext",
    &[
        f("Capabilities", "capabilities", Kind::Pointer(&CAPABILITIES)),
        f("Privileged", "privileged", Kind::Any),
        f("SELinuxOptions", "seLinuxOptions", Kind::Pointer(&SE_LINUX_OPTIONS)),
        f("WindowsOptions", "windowsOptions", Kind::Any),
        f("RunAsUser", "runAsUser", Kind::MaybeInt),
        f("RunAsGroup", "runAsGroup", Kind::MaybeInt),
        f("RunAsNonRoot", "runAsNonRoot", Kind::Any),
        f("ReadOnlyRootFilesystem", "readOnlyRootFilesystem", Kind::Any),
        f("AllowPrivilegeEscalation", "allowPrivilegeEscalation", Kind::Any),
        f("ProcMount", "procMount", Kind::Any),
        f("SeccompProfile", "seccompProfile", Kind::Pointer(&SECCOMP_PROFILE)),
        f("AppArmorProfile", "appArmorProfile", Kind::Any),
    ],
);

static POD_SECURITY_CONTEXT: Shape = shape(
    "v1.PodSecurityContext",
    &[
        f("SELinuxOptions", "seLinuxOptions", Kind::Pointer(&SE_LINUX_OPTIONS)),
        f("WindowsOptions", "windowsOptions", Kind::Any),
        f("RunAsUser", "runAsUser", Kind::MaybeInt),
        f("RunAsGroup", "runAsGroup", Kind::MaybeInt),
        f("RunAsNonRoot", "runAsNonRoot", Kind::Any),
        f("SupplementalGroups", "supplementalGroups", Kind::List(&Kind::Int)),
        f("SupplementalGroupsPolicy", "supplementalGroupsPolicy", Kind::Any),
        f("FSGroup", "fsGroup", Kind::MaybeInt),
        f("Sysctls", "sysctls", Kind::List(&Kind::Any)),
        f("FSGroupChangePolicy", "fsGroupChangePolicy", Kind::Any),
        f("SeccompProfile", "seccompProfile", Kind::Pointer(&SECCOMP_PROFILE)),
        f("AppArmorProfile", "appArmorProfile", Kind::Any),
        f("SELinuxChangePolicy", "seLinuxChangePolicy", Kind::Any),
    ],
);

static CAPABILITIES: Shape =
    shape("v1.Capabilities", &[f("Add", "add", Kind::List(&Kind::Text)), f("Drop", "drop", Kind::List(&Kind::Text))]);

static SECCOMP_PROFILE: Shape =
    shape("v1.SeccompProfile", &[f("Type", "type", Kind::Text), f("LocalhostProfile", "localhostProfile", Kind::Any)]);

static VOLUME: Shape = shape(
    "v1.Volume",
    &[
        f("Name", "name", Kind::Text),
        f("HostPath", "hostPath", Kind::Pointer(&HOST_PATH_VOLUME_SOURCE)),
        f("EmptyDir", "emptyDir", Kind::Pointer(&EMPTY_DIR_VOLUME_SOURCE)),
        f("GCEPersistentDisk", "gcePersistentDisk", Kind::Any),
        f("AWSElasticBlockStore", "awsElasticBlockStore", Kind::Any),
        f("GitRepo", "gitRepo", Kind::Any),
        f("Secret", "secret", Kind::Pointer(&SECRET_VOLUME_SOURCE)),
        f("NFS", "nfs", Kind::Any),
        f("ISCSI", "iscsi", Kind::Any),
        f("Glusterfs", "glusterfs", Kind::Any),
        f("PersistentVolumeClaim", "persistentVolumeClaim", Kind::Any),
        f("RBD", "rbd", Kind::Any),
        f("FlexVolume", "flexVolume", Kind::Any),
        f("Cinder", "cinder", Kind::Any),
        f("CephFS", "cephfs", Kind::Any),
        f("Flocker", "flocker", Kind::Any),
        f("DownwardAPI", "downwardAPI", Kind::Any),
        f("FC", "fc", Kind::Any),
        f("AzureFile", "azureFile", Kind::Any),
        f("ConfigMap", "configMap", Kind::Pointer(&CONFIG_MAP_VOLUME_SOURCE)),
        f("VsphereVolume", "vsphereVolume", Kind::Any),
        f("Quobyte", "quobyte", Kind::Any),
        f("AzureDisk", "azureDisk", Kind::Any),
        f("PhotonPersistentDisk", "photonPersistentDisk", Kind::Any),
        f("Projected", "projected", Kind::Any),
        f("PortworxVolume", "portworxVolume", Kind::Any),
        f("ScaleIO", "scaleIO", Kind::Any),
        f("StorageOS", "storageos", Kind::Any),
        f("CSI", "csi", Kind::Any),
        f("Ephemeral", "ephemeral", Kind::Any),
        f("Image", "image", Kind::Any),
    ],
);

static LOCAL_OBJECT_REFERENCE: Shape = shape("v1.LocalObjectReference", &[f("Name", "name", Kind::Text)]);

static TOLERATION: Shape = shape(
    "v1.Toleration",
    &[
        f("Key", "key", Kind::Text),
        f("Operator", "operator", Kind::Text),
        f("Value", "value", Kind::Text),
        f("Effect", "effect", Kind::Text),
        f("TolerationSeconds", "tolerationSeconds", Kind::MaybeInt),
    ],
);

static HOST_ALIAS: Shape =
    shape("v1.HostAlias", &[f("IP", "ip", Kind::Text), f("Hostnames", "hostnames", Kind::List(&Kind::Text))]);

static POD_DNS_CONFIG: Shape = shape(
    "v1.PodDNSConfig",
    &[
        f("Nameservers", "nameservers", Kind::List(&Kind::Text)),
        f("Searches", "searches", Kind::List(&Kind::Text)),
        f("Options", "options", Kind::List(&Kind::Struct(&POD_DNS_CONFIG_OPTION))),
    ],
);

static OWNER_REFERENCE: Shape = shape(
    "metav1.OwnerReference",
    &[
        f("APIVersion", "apiVersion", Kind::Text),
        f("Kind", "kind", Kind::Text),
        f("Name", "name", Kind::Text),
        f("UID", "uid", Kind::Text),
        f("Controller", "controller", Kind::Any),
        f("BlockOwnerDeletion", "blockOwnerDeletion", Kind::Any),
    ],
);

static EMPTY_DIR_VOLUME_SOURCE: Shape =
    shape("v1.EmptyDirVolumeSource", &[f("Medium", "medium", Kind::Text), f("SizeLimit", "sizeLimit", Kind::Any)]);

static SECRET_VOLUME_SOURCE: Shape = shape(
    "v1.SecretVolumeSource",
    &[
        f("SecretName", "secretName", Kind::Text),
        f("Items", "items", Kind::List(&Kind::Any)),
        f("DefaultMode", "defaultMode", Kind::MaybeInt),
        f("Optional", "optional", Kind::Any),
    ],
);

static CONFIG_MAP_VOLUME_SOURCE: Shape = shape(
    "v1.ConfigMapVolumeSource",
    &[
        f("Name", "name", Kind::Text),
        f("Items", "items", Kind::List(&Kind::Any)),
        f("DefaultMode", "defaultMode", Kind::MaybeInt),
        f("Optional", "optional", Kind::Any),
    ],
);

static HOST_PATH_VOLUME_SOURCE: Shape =
    shape("v1.HostPathVolumeSource", &[f("Path", "path", Kind::Text), f("Type", "type", Kind::Any)]);

static SE_LINUX_OPTIONS: Shape = shape(
    "v1.SELinuxOptions",
    &[
        f("User", "user", Kind::Text),
        f("Role", "role", Kind::Text),
        f("Type", "type", Kind::Text),
        f("Level", "level", Kind::Text),
    ],
);

static POD_DNS_CONFIG_OPTION: Shape =
    shape("v1.PodDNSConfigOption", &[f("Name", "name", Kind::Text), f("Value", "value", Kind::Any)]);
