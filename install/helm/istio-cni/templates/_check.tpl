{{/*
Refuses unsupported values, and names that are neither in this chart nor in Istio's charts. All charts of a mesh share the
values under `global`, so only those that this chart reads are checked.
*/}}
{{- define "istio-cni.checkNames" -}}
{{- $others := list "base" "defaultRevision" "experimental" "gatewayClasses" "gateways" "istio_cni" "istiodRemote" "meshConfig" "pilot" "revisionTags" "sidecarInjectorWebhook" "telemetry" "ztunnel" -}}
{{- $istios := dict -}}
{{- $_ := set $istios "ambient" (list "configDir" "dnsCapture" "enableAmbientDetectionRetry" "enabled" "enablementSelectors" "ipv6" "reconcileIptablesOnStartup" "shareHostNetworkNamespace") -}}
{{- $_ := set $istios "repair" (concat (keys .defaults.repair) (list "repairPods" "deletePods" "labelPods" "hub" "tag")) -}}
{{- range list "logging" "monitoring" "resourceQuotas" "statusPage" "taint" -}}
{{- $_ := set $istios . (keys (get $.defaults .)) -}}
{{- end -}}
{{- $known := concat (keys .defaults) (list "ambient" "compatibilityVersion" "platform" "profile") $others -}}
{{- range $name, $value := .given -}}
{{- if eq $name "rollingMaxUnavailable" -}}
{{- fail "rollingMaxUnavailable is not supported: say updateStrategy.rollingUpdate.maxUnavailable" -}}
{{- else if not (has $name $known) -}}
{{- fail (printf "%s is a value of neither this chart nor one of Istio's" $name) -}}
{{- else if hasKey $istios $name -}}
{{- range $key := keys ($value | default dict) | sortAlpha -}}
{{- if not (has $key (get $istios $name)) -}}
{{- fail (printf "%s.%s is a value of neither this chart nor Istio's" $name $key) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "istio-cni.checkValues" -}}
{{- $true := list "1" "t" "T" "true" "TRUE" "True" -}}
{{- $ambient := "this chart has no ambient mode yet. Leave it off, or install Istio's own chart" -}}
{{- if has (toString (dig "enabled" false (.ambient | default dict))) $true -}}
{{- fail (printf "ambient.enabled is not supported: %s" $ambient) -}}
{{- end -}}
{{- range $key := list "hub" "tag" -}}
{{- if get $.repair $key -}}
{{- fail (printf "repair.%s is not supported: repair is part of the agent, whose image `%s` names" $key $key) -}}
{{- end -}}
{{- end -}}
{{- $providers := list "default" "multus" -}}
{{- if not (has .provider $providers) -}}
{{- fail (printf "provider is \"%v\"; known are %s" .provider (join ", " $providers)) -}}
{{- end -}}
{{- range $dir := .runtimeConfigDirs -}}
{{- if not (and (hasPrefix "/" $dir) (ne "/" (clean $dir))) -}}
{{- fail (printf "runtimeConfigDirs has \"%v\", which is not the absolute path of a directory below the root" $dir) -}}
{{- end -}}
{{- end -}}
{{- $scopes := list "all" "cluster" "namespace" -}}
{{- if not (has .global.resourceScope $scopes) -}}
{{- fail (printf "global.resourceScope is \"%v\"; known are %s" .global.resourceScope (join ", " $scopes)) -}}
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
