{{/*
Refuses a name that is near to a known one: it is mistyped. Others are names of other charts, with which this one shares its
`global` values. Arguments: the values, the defaults, and the path of both.
*/}}
{{- define "istio-cni.checkNames" -}}
{{- $values := index . 0 | default dict -}}
{{- $defaults := index . 1 -}}
{{- $path := index . 2 -}}
{{- range $name, $default := $defaults -}}
{{- if and (kindIs "map" $default) (kindIs "map" (get $values $name)) -}}
{{- include "istio-cni.checkNames" (list (get $values $name) $default (printf "%s.%s" $path $name)) -}}
{{- end -}}
{{- end -}}
{{- $others := without (keys $values) "profile" -}}
{{- range keys $defaults -}}
{{- $others = without $others . -}}
{{- end -}}
{{- $known := dict -}}
{{- range $others | empty | ternary list (keys $defaults) -}}
{{- include "istio-cni.near" (list . . $known) -}}
{{- end -}}
{{- range $name := $others | sortAlpha -}}
{{- $near := dict -}}
{{- include "istio-cni.near" (list $name $name $near) -}}
{{- range $key := keys $near -}}
{{- with get $known $key -}}
{{- fail (printf "%s.%s is unknown: is %s.%s meant?" $path $name $path .) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/*
Adds keys for a name, of which near names have one in common: of a name of up to three letters its letters in another order, of
a longer one what remains without one or two letters. Arguments: the text, the name, and the map for the keys.
*/}}
{{- define "istio-cni.near" -}}
{{- $text := index . 0 | lower -}}
{{- $name := index . 1 -}}
{{- $keys := index . 2 -}}
{{- if le (len $name) 3 -}}
{{- $_ := set $keys (splitList "" $text | sortAlpha | join " ") $name -}}
{{- else -}}
{{- $_ := set $keys $text $name -}}
{{- $least := sub (len $name) (gt (len $name) 7 | ternary 2 1) | int -}}
{{- range $at := gt (len $text) $least | ternary (until (len $text)) list -}}
{{- $rest := printf "%s%s" (substr 0 $at $text) (substr (int (add1 $at)) (len $text) $text) -}}
{{- if not (hasKey $keys $rest) -}}
{{- include "istio-cni.near" (list $rest $name $keys) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
