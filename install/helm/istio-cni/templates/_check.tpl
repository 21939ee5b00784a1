{{/*
Refuses values that contradict each other or what the chart renders, and values of Istio's that are not supported, with the
reason. Names and the forms of single values are values.schema.json's.
*/}}
{{- define "istio-cni.checkValues" -}}
{{- $true := list "1" "t" "T" "true" "TRUE" "True" -}}
{{- $ambient := "this chart has no ambient mode yet. Leave it off, or install Istio's own chart" -}}
{{- if has (toString (dig "enabled" false (.ambient | default dict))) $true -}}
{{- fail (printf "ambient.enabled is not supported: %s" $ambient) -}}
{{- end -}}
{{- range $key := list "hub" "image" "tag" -}}
{{- if get $.repair $key -}}
{{- fail (printf "repair.%s is not supported: repair is part of the agent, whose image `hub`, `image` and `tag` name" $key) -}}
{{- end -}}
{{- end -}}
{{- if hasKey . "rollingMaxUnavailable" -}}
{{- fail "rollingMaxUnavailable is not supported: say updateStrategy.rollingUpdate.maxUnavailable" -}}
{{- end -}}
{{- $image := include "istio-cni.image" . -}}
{{- if regexMatch "^((index\\.)?docker\\.io/)?istio/|^gcr\\.io/istio-|^registry\\.istio\\.io/" $image -}}
{{- fail (printf "the image %s is Istio's own, whose program is another: set global.hub and global.tag, or image, to this project's" $image) -}}
{{- end -}}
{{- with .updateStrategy.rollingUpdate -}}
{{- if and (get . "maxSurge") (get . "maxUnavailable") -}}
{{- fail "updateStrategy.rollingUpdate: the API server refuses a DaemonSet with both maxSurge and maxUnavailable" -}}
{{- end -}}
{{- end -}}
{{- if and (eq "Localhost" (get .seccompProfile "type")) (not (get .seccompProfile "localhostProfile")) -}}
{{- fail "seccompProfile.localhostProfile is missing: Localhost is the type of a profile on the node" -}}
{{- end -}}
{{- range $name := list "k8s-app" "sidecar.istio.io/inject" "istio.io/dataplane-mode" -}}
{{- if hasKey $.podLabels $name -}}
{{- fail (printf "podLabels.%s is not supported: the chart sets this label of the pods" $name) -}}
{{- end -}}
{{- end -}}
{{- if not (regexMatch "^[0-9]*$" (toJson (get .env "REPAIR_BUDGET") | trimAll "\"")) -}}
{{- fail "env.REPAIR_BUDGET is no number: say repair.budget" -}}
{{- end -}}
{{- if has (toString (get .env "AMBIENT_ENABLED")) $true -}}
{{- fail (printf "env.AMBIENT_ENABLED is not supported: %s" $ambient) -}}
{{- end -}}
{{- /* The agent's rights, mounts and admission policies depend on these values. */ -}}
{{- $values := dict "REPAIR_ENABLED" "repair.enabled" "REPAIR_DRY_RUN" "repair.dryRun" "REPAIR_BROKEN_POD_LABEL_KEY" "repair.brokenPodLabelKey" "REPAIR_MODE" "repair.mode" "REPAIR_REPAIR_PODS" "repair.repairPods" "REPAIR_DELETE_PODS" "repair.deletePods" "REPAIR_LABEL_PODS" "repair.labelPods" "STARTUP_TAINT" "taint" -}}
{{- range $name, $value := $values -}}
{{- if hasKey $.env $name -}}
{{- fail (printf "env.%s is not supported: say %s, which gives the agent the rights for it, too" $name $value) -}}
{{- end -}}
{{- end -}}
{{- $fixed := dict "HEALTH_PORT" "the probes ask port 8000" "MONITORING_PORT" "port 15014 is scraped" "CNI_BIN_SOURCE_DIR" "the image has the plugin in one directory" "KUBECONFIG" "the agent has the rights of its service account" "SERVICE_ACCOUNT_DIR" "the kubelet mounts the service account" "REPAIR_NODE_NAME" "an agent has the right to act on pods of its own node only" -}}
{{- range $name := list "CNI_AGENT_RUN_DIR" "HOST_CNI_BIN_DIR" "HOST_CNI_NET_DIR" "HOST_ROOT" "MOUNTED_CNI_BIN_DIR" "MOUNTED_CNI_NET_DIR" "MOUNTED_CNI_CACHE_DIR" "REPAIR_PROC" "REPAIR_NETNS_DIRS" -}}
{{- $_ := set $fixed $name "the chart mounts the directory" -}}
{{- end -}}
{{- range $name := list "NODE_NAME" "POD_NAME" "POD_NAMESPACE" "PLUGIN_SERVICE_ACCOUNT" -}}
{{- $_ := set $fixed $name "the DaemonSet sets it" -}}
{{- end -}}
{{- range $name, $reason := $fixed -}}
{{- if hasKey $.env $name -}}
{{- fail (printf "env.%s is not supported: %s" $name $reason) -}}
{{- end -}}
{{- end -}}
{{- end -}}
