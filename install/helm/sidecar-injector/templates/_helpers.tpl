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

{{- define "injector.labels" -}}
app.kubernetes.io/name: sidecar-injector
app.kubernetes.io/part-of: istio
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

{{- define "injector.openshift" -}}
{{- if eq .Values.global.platform "openshift" -}}true
{{- else if .Values.global.platform -}}
{{- fail (printf "global.platform is %q; only openshift makes a difference here" .Values.global.platform) -}}
{{- end -}}
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
{{- $excluded := .Values.excludeNamespaces -}}
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
