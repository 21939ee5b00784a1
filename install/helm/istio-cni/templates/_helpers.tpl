{{/* All values: what is given, over the platform's, over the defaults. */}}
{{- define "istio-cni.values" -}}
{{- $given := mustMergeOverwrite (omit .Values "defaults" "cni" | mustDeepCopy) (.Values.cni | default dict) -}}
{{- $platform := dig "global" "platform" "" $given -}}
{{- $ofPlatform := dict -}}
{{- with $platform -}}
{{- $file := $.Files.Get (printf "files/platform-%s.yaml" .) -}}
{{- if not $file -}}
{{- fail (printf "global.platform is %q; known are gke, openshift, k3s, k3d, microk8s and minikube" .) -}}
{{- end -}}
{{- $ofPlatform = $file | fromYaml -}}
{{- end -}}
{{- mustMergeOverwrite (mustDeepCopy .Values.defaults) $ofPlatform $given | toYaml -}}
{{- end -}}

{{- define "istio-cni.labels" -}}
app.kubernetes.io/name: istio-cni
app.kubernetes.io/part-of: istio
{{- with .revision }}
istio.io/rev: {{ . | quote }}
{{- end }}
{{- with .ownerName }}
install.operator.istio.io/owning-resource: {{ . | quote }}
{{- end }}
{{- end -}}

{{- define "istio-cni.updateStrategy" -}}
{{- $strategy := .updateStrategy -}}
{{- if and (eq $strategy.type "RollingUpdate") (not $strategy.rollingUpdate) -}}
{{- $strategy = dict "type" $strategy.type "rollingUpdate" (dict "maxSurge" 1 "maxUnavailable" 0) -}}
{{- end -}}
{{- toYaml $strategy -}}
{{- end -}}

{{/* What becomes of broken pods, told as the program tells it; "" where nobody looks for them. */}}
{{- define "istio-cni.repairMode" -}}
{{- $repair := .repair -}}
{{- $modes := list "evict" "delete" "label" "repair" "repair-or-evict" "observe" -}}
{{- if not $repair.enabled -}}
{{- else if $repair.mode -}}
{{- if not (has $repair.mode $modes) -}}
{{- fail (printf "repair.mode is %q; known are %s" $repair.mode (join ", " $modes)) -}}
{{- end -}}
{{- $repair.mode -}}
{{- else if $repair.repairPods -}}repair
{{- else if $repair.deletePods -}}delete
{{- else if $repair.labelPods -}}label
{{- else if or (kindIs "bool" $repair.repairPods) (kindIs "bool" $repair.deletePods) (kindIs "bool" $repair.labelPods) -}}observe
{{- else -}}evict
{{- end -}}
{{- end -}}

{{/* Not empty where the agent enters the pods' network namespaces. */}}
{{- define "istio-cni.inPlace" -}}
{{- if and (hasPrefix "repair" (include "istio-cni.repairMode" .)) (not .repair.dryRun) -}}true{{- end -}}
{{- end -}}

{{- define "istio-cni.capabilities" -}}
# The node's CNI directories may belong to another user.
- DAC_OVERRIDE
{{- if include "istio-cni.inPlace" . }}
# To enter the pods' network namespaces,
- SYS_ADMIN
# to find them by their processes,
- SYS_PTRACE
# and to program them.
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

{{/* "true" where objects of this scope, cluster or namespace, are wanted. */}}
{{- define "istio-cni.wants" -}}
{{- if has .values.global.resourceScope (list "all" .scope) -}}true{{- end -}}
{{- end -}}

{{- define "istio-cni.config" -}}
CHAINED_CNI_PLUGIN: {{ .chained | quote }}
{{- with .cniConfFileName }}
CNI_CONF_NAME: {{ . | quote }}
{{- end }}
ISTIO_OWNED_CNI_CONFIG: {{ .istioOwnedCNIConfig | quote }}
{{- with .istioOwnedCNIConfigFileName }}
ISTIO_OWNED_CNI_CONFIG_FILENAME: {{ . | quote }}
{{- end }}
EXCLUDE_NAMESPACES: {{ join "," .excludeNamespaces | quote }}
NATIVE_NFTABLES: {{ .global.nativeNftables | quote }}
REPAIR_ENABLED: {{ .repair.enabled | quote }}
{{- with include "istio-cni.repairMode" . }}
REPAIR_MODE: {{ . | quote }}
{{- end }}
REPAIR_DRY_RUN: {{ .repair.dryRun | quote }}
REPAIR_STANDALONE_PODS: {{ .repair.standalonePods | quote }}
REPAIR_BUDGET: {{ .repair.budget | int | quote }}
REPAIR_INIT_CONTAINER_NAME: {{ .repair.initContainerName | quote }}
REPAIR_BROKEN_POD_LABEL_KEY: {{ .repair.brokenPodLabelKey | quote }}
REPAIR_BROKEN_POD_LABEL_VALUE: {{ .repair.brokenPodLabelValue | quote }}
{{- if .taint.enabled }}
STARTUP_TAINT: {{ .taint.name | quote }}
{{- end }}
{{- range $name, $value := .env }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end -}}
