{{/*
Sets values that a former version of the chart did not have, or that are null, to their defaults: an upgrade with --reuse-values
has the values of that version. Each template includes it first. Without `resources` there are none.
*/}}
{{- define "injector.defaults" -}}
{{- $defaults := .Files.Get "files/defaults.json" | fromJson -}}
{{- include "injector.checkNames" (list .Values.global $defaults.global "global") -}}
{{- include "injector.fill" (list .Values $defaults) -}}
{{- $image := include "injector.image" . -}}
{{- if regexMatch "^((index\\.)?docker\\.io/)?istio/|^gcr\\.io/istio-|^registry\\.istio\\.io/" $image -}}
{{- fail (printf "the image %s is Istio's own, whose program is another: set global.hub and global.tag, or image, to this project's" $image) -}}
{{- end -}}
{{- end -}}

{{/*
Sets values that are null to their defaults, and gives values the kind of their default: --set-string gives text for all, and YAML
takes text without quotes for a number or a boolean. Without `resources` there are none, and labels may be removed by null.
Arguments: the values and the defaults.
*/}}
{{- define "injector.fill" -}}
{{- $values := index . 0 -}}
{{- range $name, $default := omit (index . 1) "resources" "priorityClassName" -}}
{{- $value := index $values $name -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := set $values $name $default -}}
{{- else if and (kindIs "map" $default) (ne $name "labels") -}}
{{- include "injector.fill" (list $value $default) -}}
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

{{/* The name of all objects in the namespace. */}}
{{- define "injector.name" -}}
istio-sidecar-injector{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{/* The name of the webhook configuration, as in Istio, and of other cluster objects; distinct for each installation. */}}
{{- define "injector.clusterName" -}}
{{ include "injector.name" . }}{{ include "injector.suffix" . }}
{{- end -}}

{{- define "injector.suffix" -}}
{{ if ne .Release.Namespace "istio-system" }}-{{ .Release.Namespace }}{{ end }}
{{- end -}}

{{/* The webhook configurations of Istio's injection: the revision's, then its tags'. */}}
{{- define "injector.configurations" -}}
{{ include "injector.clusterName" . }}
{{- range .Values.revisionTags }},istio-revision-tag-{{ . }}{{ include "injector.suffix" $ }}{{ end }}
{{- end -}}

{{/* The name of istiod's ConfigMap for this revision, from the name without a revision and the root context. */}}
{{- define "injector.istiods" -}}
{{- $revision := (index . 1).Values.revision -}}
{{ index . 0 }}{{ if not (has $revision (list "" "default")) }}-{{ $revision }}{{ end }}
{{- end -}}

{{/* The Secret of the program's own certificate. */}}
{{- define "injector.secret" -}}
sidecar-injector-certificate{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{/* The name of all objects of Dapr's injection. */}}
{{- define "injector.dapr" -}}
dapr-sidecar-injector{{ with .Values.revision }}-{{ . }}{{ end }}
{{- end -}}

{{/* The labels of all objects and of the pods. */}}
{{- define "injector.commonLabels" -}}
app.kubernetes.io/name: sidecar-injector
app.kubernetes.io/part-of: istio
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" | quote }}
{{- end -}}

{{- define "injector.labels" -}}
{{ include "injector.commonLabels" . }}
istio.io/rev: {{ .Values.revision | default "default" | quote }}
{{- with .Values.ownerName }}
install.operator.istio.io/owning-resource: {{ . | quote }}
{{- end }}
{{- end -}}

{{/* The labels that select the pods. */}}
{{- define "injector.selector" -}}
app: sidecar-injector
istio.io/rev: {{ .Values.revision | default "default" | quote }}
{{- end -}}

{{- define "injector.image" -}}
{{- with .Values -}}
{{- if contains "/" .image -}}
{{- .image -}}
{{- else -}}
{{- printf "%s/%s:%v" .global.hub .image .global.tag }}{{ with .global.variant }}-{{ . }}{{ end }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Not empty on OpenShift, the only platform that makes a difference here. */}}
{{- define "injector.openshift" -}}
{{- if eq "openshift" (coalesce .Values.platform .Values.global.platform "none") -}}true{{- end -}}
{{- end -}}

{{- define "injector.daprNamespace" -}}
{{- .Values.dapr.namespace | default .Release.Namespace -}}
{{- end -}}

{{/* A binding of a role to this chart's service account. Arguments: the root context, the role's kind, name and namespace (none for a ClusterRole). */}}
{{- define "injector.binding" -}}
apiVersion: rbac.authorization.k8s.io/v1
kind: {{ .kind }}Binding
metadata:
  name: {{ .name }}
  {{- with .namespace }}
  namespace: {{ . }}
  {{- end }}
  labels:
    {{- include "injector.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: {{ .kind }}
  name: {{ .name }}
subjects:
  - kind: ServiceAccount
    name: {{ include "injector.name" .root }}
    namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{/* Namespaces whose pods are not reviewed. */}}
{{- define "injector.excluded" -}}
{{- $excluded := .Values.excludeNamespaces | join "," | nospace | splitList "," | compact -}}
{{- if .Values.excludeOwnNamespace -}}
{{- $excluded = append $excluded .Release.Namespace -}}
{{- end -}}
{{- with $excluded }}
- key: kubernetes.io/metadata.name
  operator: NotIn
  values: {{ uniq . | toJson }}
{{- end }}
{{- end -}}

{{- define "injector.webhook" -}}
rules:
  - apiGroups: [""]
    apiVersions: [v1]
    operations: [CREATE]
    resources: [pods]
    scope: Namespaced
clientConfig:
  # The program writes the caBundle.
  service:
    name: {{ include "injector.name" . }}
    namespace: {{ .Release.Namespace }}
    path: {{ .path | quote }}
    port: 443
admissionReviewVersions: [v1]
# Records events on the owners of pods without a sidecar.
sideEffects: NoneOnDryRun
timeoutSeconds: {{ .Values.sidecarInjectorWebhook.timeoutSeconds }}
{{- end -}}

{{/* A label selector requirement: key, operator and, for In and NotIn, a value. */}}
{{- define "injector.requirement" -}}
- key: {{ index . 0 }}
  operator: {{ index . 1 }}
  {{- if gt (len .) 2 }}
  values: [{{ index . 2 | quote }}]
  {{- end }}
{{- end -}}
