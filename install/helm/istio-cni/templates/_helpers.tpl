{{/*
All values: the given values override the platform's values, which override the profile's, which override the defaults. Adds
`release`, the fields of the release and the chart that the labels contain.
*/}}
{{- define "istio-cni.values" -}}
{{- $defaults := .Files.Get "files/defaults.json" | fromJson -}}
{{- include "istio-cni.checkDefaults" (list . $defaults) -}}
{{- $given := omit .Values "defaults" "_internal_defaults_do_not_set" "cni" | mustDeepCopy -}}
{{- $given = mustMergeOverwrite $given (.Values.cni | default dict | mustDeepCopy) -}}
{{- range $name, $value := $given -}}
{{- if and (kindIs "invalid" $value) (ne $name "resources") -}}
{{- $_ := unset $given $name -}}
{{- end -}}
{{- end -}}
{{- $ofProfile := dict -}}
{{- with coalesce $given.profile (dig "global" "profile" "" $given) -}}
{{- $ofProfile = get ($.Files.Get "files/profiles.yaml" | fromYaml) . -}}
{{- end -}}
{{- $ofPlatform := dict -}}
{{- with coalesce $given.platform (dig "global" "platform" "" $given) (dig "global" "platform" "" $ofProfile) -}}
{{- $file := $.Files.Get (printf "files/platform-%s.yaml" .) | fromYaml -}}
{{- $ofPlatform = mustMerge $file (dict "global" (dict "platform" .)) -}}
{{- end -}}
{{- $values := mustMergeOverwrite (mustDeepCopy $defaults) $ofProfile $ofPlatform $given -}}
{{- include "istio-cni.checkNames" (list $values.global $defaults.global "global") -}}
{{- include "istio-cni.fill" (list $values $defaults) -}}
{{- with $given.platform -}}
{{- $_ := set $values.global "platform" . -}}
{{- end -}}
{{- include "istio-cni.checkValues" $values -}}
{{- if not $values.cniBinDir -}}
{{- $_ := set $values "cniBinDir" (contains "-gke" .Capabilities.KubeVersion.Version | ternary "/home/kubernetes/bin" "/opt/cni/bin") -}}
{{- end -}}
{{- if kindIs "invalid" $values.useAppArmorAnnotation -}}
{{- $_ := set $values "useAppArmorAnnotation" (semverCompare "<1.30.0-0" .Capabilities.KubeVersion.Version) -}}
{{- end -}}
{{- $release := dict "name" .Release.Name "service" .Release.Service "version" .Chart.AppVersion -}}
{{- $_ := set $release "chart" (printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-") -}}
{{- set $values "release" $release | toYaml -}}
{{- end -}}

{{/*
Sets values that are null to their defaults, and gives values the kind of their default: --set-string gives text for all, and YAML
takes text without quotes for a number or a boolean. Without `resources` there are none, and labels may be removed by null.
Arguments: the values and the defaults.
*/}}
{{- define "istio-cni.fill" -}}
{{- $values := index . 0 -}}
{{- range $name, $default := omit (index . 1) "resources" -}}
{{- $value := index $values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $values $name $default -}}
{{- else if and (kindIs "map" $default) (ne $name "labels") -}}
{{- include "istio-cni.fill" (list $value $default) -}}
{{- else if and (kindIs "string" $default) (kindIs "float64" $value) -}}
{{- $_ := set $values $name ($value | int64 | toString) -}}
{{- else if kindIs "string" $default -}}
{{- $_ := set $values $name (toString $value) -}}
{{- else if kindIs "float64" $default -}}
{{- $_ := set $values $name (int64 $value) -}}
{{- else if and (kindIs "string" $value) (kindIs "slice" $default) -}}
{{- $_ := set $values $name (nospace $value | splitList "," | compact) -}}
{{- else if kindIs "string" $value -}}
{{- $_ := set $values $name (eq $value "true") -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* The labels of all objects and of the pods. */}}
{{- define "istio-cni.commonLabels" -}}
app.kubernetes.io/name: istio-cni
app.kubernetes.io/part-of: istio
app.kubernetes.io/instance: {{ .release.name | quote }}
app.kubernetes.io/managed-by: {{ .release.service | quote }}
app.kubernetes.io/version: {{ .release.version | quote }}
helm.sh/chart: {{ .release.chart | quote }}
{{- end -}}

{{- define "istio-cni.labels" -}}
{{ include "istio-cni.commonLabels" . }}
operator.istio.io/component: Cni
istio.io/rev: {{ .revision | default "default" | quote }}
install.operator.istio.io/owning-resource: {{ .ownerName | default "unknown" | quote }}
{{- end -}}

{{/* The API server refuses a rolling update of which both numbers are zero, or none is. It takes one for maxUnavailable. */}}
{{- define "istio-cni.updateStrategy" -}}
{{- $update := .updateStrategy.rollingUpdate -}}
{{- $surge := hasKey $update "maxSurge" | ternary (get $update "maxSurge") 1 -}}
{{- if and (eq .updateStrategy.type "RollingUpdate") $surge (not (get $update "maxUnavailable")) -}}
{{- $update = dict "maxSurge" $surge "maxUnavailable" 0 -}}
{{- end -}}
{{- toYaml (dict "type" .updateStrategy.type "rollingUpdate" $update) -}}
{{- end -}}

{{/* The repair mode, as in --repair-mode; "" if repair is disabled. */}}
{{- define "istio-cni.repairMode" -}}
{{- $repair := .repair -}}
{{- if not $repair.enabled -}}
{{- else if $repair.mode -}}
{{- $repair.mode -}}
{{- else if not (or (include "istio-cni.isSet" $repair.repairPods) (include "istio-cni.isSet" $repair.deletePods) (include "istio-cni.isSet" $repair.labelPods)) -}}evict
{{- /* Istio's switches with Istio's defaults: repairPods is on unless disabled. */ -}}
{{- else if ne (toString $repair.repairPods) "false" -}}repair
{{- else if eq (toString $repair.deletePods) "true" -}}delete
{{- else if eq (toString $repair.labelPods) "true" -}}label
{{- else -}}observe
{{- end -}}
{{- end -}}

{{- define "istio-cni.isSet" -}}
{{- if not (kindIs "invalid" .) -}}true{{- end -}}
{{- end -}}

{{/* Not empty if the agent enters the pods' network namespaces. */}}
{{- define "istio-cni.inPlace" -}}
{{- if and (hasPrefix "repair" (include "istio-cni.repairMode" .)) (not .repair.dryRun) -}}true{{- end -}}
{{- end -}}

{{/* Not empty if the agent finds a directory by the container runtime's configuration, below the node's root. */}}
{{- define "istio-cni.auto" -}}
{{- if or (eq "auto" .cniBinDir) (eq "auto" .cniConfDir) -}}true{{- end -}}
{{- end -}}

{{- define "istio-cni.capabilities" -}}
# The node's CNI directories may belong to another user.
- DAC_OVERRIDE
{{- if include "istio-cni.inPlace" . }}
# Enter the pods' network namespaces.
- SYS_ADMIN
# Find the network namespaces by the pods' processes.
- SYS_PTRACE
# Program the rules in the pods' network namespaces.
- NET_ADMIN
{{- end }}
{{- end -}}

{{- define "istio-cni.image" -}}
{{- $hub := .hub | default .global.hub -}}
{{- $tag := .tag | default .global.tag -}}
{{- $variant := .variant | default .global.variant -}}
{{- if contains "/" .image -}}
{{- .image -}}
{{- else -}}
{{- printf "%s/%s:%v" $hub .image $tag }}{{ with $variant }}-{{ . }}{{ end }}
{{- end -}}
{{- end -}}

{{/* "true" if objects of this scope (cluster or namespace) are rendered. */}}
{{- define "istio-cni.wants" -}}
{{- if has .values.global.resourceScope (list "all" .scope) -}}true{{- end -}}
{{- end -}}

{{/* The agent's environment: its settings, overridden by the variables under `env`. */}}
{{- define "istio-cni.config" -}}
{{- $config := include "istio-cni.settings" . | fromYaml -}}
{{- range $name, $value := .env -}}
{{- if include "istio-cni.isSet" $value -}}
{{- $_ := set $config $name (kindIs "string" $value | ternary $value (toJson $value)) -}}
{{- end -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{- define "istio-cni.settings" -}}
CHAINED_CNI_PLUGIN: {{ .chained | quote }}
{{- with .cniConfFileName }}
CNI_CONF_NAME: {{ . | quote }}
{{- end }}
ISTIO_OWNED_CNI_CONFIG: {{ .istioOwnedCNIConfig | quote }}
{{- if .istioOwnedCNIConfig }}
ISTIO_OWNED_CNI_CONF_FILENAME: {{ .istioOwnedCNIConfigFileName | quote }}
{{- end }}
{{- if eq "auto" .cniConfDir }}
MOUNTED_CNI_NET_DIR: auto
{{- end }}
{{- if eq "auto" .cniBinDir }}
MOUNTED_CNI_BIN_DIR: auto
{{- end }}
{{- if or (include "istio-cni.auto" .) .runtimeConfigDirs }}
HOST_ROOT: /host/root
{{- if ne "auto" .cniConfDir }}
HOST_CNI_NET_DIR: {{ .cniConfDir | quote }}
{{- end }}
{{- if ne "auto" .cniBinDir }}
HOST_CNI_BIN_DIR: {{ .cniBinDir | quote }}
{{- end }}
{{- end }}
EXCLUDE_NAMESPACES: {{ join "," .excludeNamespaces | quote }}
NATIVE_NFTABLES: {{ .global.nativeNftables | quote }}
{{- if .refuseSandboxes }}
REFUSE_SANDBOXES: "true"
{{- end }}
REPAIR_ENABLED: {{ .repair.enabled | quote }}
{{- with include "istio-cni.repairMode" . }}
REPAIR_MODE: {{ . | quote }}
{{- end }}
REPAIR_DRY_RUN: {{ .repair.dryRun | quote }}
REPAIR_STANDALONE_PODS: {{ .repair.standalonePods | quote }}
REPAIR_BUDGET: {{ .repair.budget | int64 | quote }}
REPAIR_INIT_CONTAINER_NAME: {{ .repair.initContainerName | quote }}
REPAIR_BROKEN_POD_LABEL_KEY: {{ .repair.brokenPodLabelKey | quote }}
REPAIR_BROKEN_POD_LABEL_VALUE: {{ .repair.brokenPodLabelValue | quote }}
{{- if .statusPage.enabled }}
STATUS_PAGE: "true"
{{- end }}
{{- if .taint.enabled }}
STARTUP_TAINT: {{ .taint.name | quote }}
{{- end }}
{{- end -}}
