{{/*
Refuses values under `defaults`, which have no effect, unless they may be the defaults of a former release, which an upgrade with
--reuse-values has there. Arguments: the root context and the defaults.
*/}}
{{- define "istio-cni.checkDefaults" -}}
{{- $root := index . 0 -}}
{{- $of := dict -}}
{{- include "istio-cni.leaves" (list (index . 1) "" $of) -}}
{{- $given := dict -}}
{{- include "istio-cni.leaves" (list $root.Values.defaults "" $given) -}}
{{- $isOwn := eq (get $of "global.tag") (get $given "global.tag") -}}
{{- range $path := keys $of -}}
{{- $isOwn = and $isOwn (hasKey $given $path) -}}
{{- end -}}
{{- $changed := list -}}
{{- range $path := concat (keys $of) (keys $given) | uniq | sortAlpha -}}
{{- if ne (get $of $path) (get $given $path) -}}
{{- $changed = append $changed $path -}}
{{- end -}}
{{- end -}}
{{- if and $changed (or $root.Release.IsInstall $isOwn) -}}
{{- fail (printf "values are given under `defaults`: %s: write them without that name" (join ", " $changed)) -}}
{{- end -}}
{{- end -}}

{{/*
Adds the values in a map that are neither null nor maps, as JSON by their paths. helm removes values of a part of another chart
that are null. Arguments: the map, the start of the paths, and the map for the values.
*/}}
{{- define "istio-cni.leaves" -}}
{{- $start := index . 1 -}}
{{- $leaves := index . 2 -}}
{{- range $name, $value := index . 0 -}}
{{- if kindIs "map" $value -}}
{{- include "istio-cni.leaves" (list $value (printf "%s%s." $start $name) $leaves) -}}
{{- else if not (kindIs "invalid" $value) -}}
{{- $_ := set $leaves (printf "%s%s" $start $name) (toJson $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Lines with the values that are not read, because they are where charts have their defaults, and that differ from these. */}}
{{- define "istio-cni.unread" -}}
{{- $of := dict -}}
{{- include "istio-cni.leaves" (list (.Files.Get "files/defaults.json" | fromJson) "" $of) -}}
{{- range $under := list "defaults" "_internal_defaults_do_not_set" -}}
{{- $given := dict -}}
{{- include "istio-cni.leaves" (list (index $.Values $under) "" $given) -}}
{{- range $path, $value := $given -}}
{{- if ne (get $of $path) $value }}
  {{ $under }}.{{ $path }}={{ $value }}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
