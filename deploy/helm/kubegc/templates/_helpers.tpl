{{- define "kubegc.selector" -}}
app.kubernetes.io/name: kubegc
app.kubernetes.io/component: garbage-collector
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- /* What belongs to one shard, of `{root, index}`: with a single shard, all of it. */ -}}
{{- define "kubegc.shard.name" -}}
{{ .root.Release.Name }}{{ if gt (int .root.Values.shards) 1 }}-shard-{{ .index }}{{ end }}
{{- end }}

{{- define "kubegc.shard.selector" -}}
{{ include "kubegc.selector" .root }}
{{- if gt (int .root.Values.shards) 1 }}
kubegc.io/shard: {{ .index | quote }}
{{- end }}
{{- end }}

{{- define "kubegc.shard.labels" -}}
{{ include "kubegc.labels" .root }}
{{- if gt (int .root.Values.shards) 1 }}
kubegc.io/shard: {{ .index | quote }}
{{- end }}
{{- end }}

{{- /* The Lease with the orders, and those of the shards, as a list in JSON. */ -}}
{{- define "kubegc.leases" -}}
{{- $shards := int .Values.shards -}}
{{- $leases := list "kubegc-garbage-collector" -}}
{{- if gt $shards 1 -}}
{{- range until $shards }}{{ $leases = append $leases (printf "kubegc-garbage-collector-shard-%d-of-%d" . $shards) }}{{ end -}}
{{- end -}}
{{- toJson $leases -}}
{{- end }}

{{- /* The collectors that `controllers` enables, as `kubegc run` reads it: of several words about one collector the first counts, and
a name counts before the star. */ -}}
{{- define "kubegc.enabled" -}}
{{- $table := fromYaml (.Files.Get "files/permissions.yaml") -}}
{{- $known := list "*" -}}
{{- range $table.collectors }}{{ $known = concat $known .names }}{{ end -}}
{{- range .Values.controllers -}}
{{- if not (has (trimPrefix "-" .) $known) -}}
{{- fail (printf "controllers: %q is not a collector; known are: %s" . (join ", " $known)) -}}
{{- end -}}
{{- end -}}
{{- $words := .Values.controllers -}}
{{- $enabled := list -}}
{{- range $collector := $table.collectors -}}
{{- $verdict := "" -}}
{{- range $word := $words -}}
{{- if not $verdict -}}
{{- if has $word $collector.names -}}
{{- $verdict = "on" -}}
{{- else if and (hasPrefix "-" $word) (has (trimPrefix "-" $word) $collector.names) -}}
{{- $verdict = "off" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if or (eq $verdict "on") (and (not $verdict) $collector.onByDefault (has "*" $words)) -}}
{{- $enabled = append $enabled $collector -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "collectors" $enabled "deletionEvents" $table.deletionEvents "garbageMetrics" $table.garbageMetrics) -}}
{{- end }}

{{- /* What the enabled collectors need, each rule once and nothing that the star grants: `{rules: [...]}`. */ -}}
{{- define "kubegc.rules" -}}
{{- $enabled := fromYaml (include "kubegc.enabled" .) -}}
{{- $all := list -}}
{{- range $enabled.collectors }}{{ $all = concat $all .rules }}{{ end -}}
{{- if .Values.deletionEvents }}{{ $all = append $all $enabled.deletionEvents }}{{ end -}}
{{- if .Values.garbageMetricsInterval }}{{ $all = append $all $enabled.garbageMetrics }}{{ end -}}
{{- $wanted := dict -}}
{{- range $all -}}
{{- $key := printf "%s %s %s" .group .resource (join "," .names) -}}
{{- $verbs := concat (dig $key "verbs" list $wanted) .verbs | uniq | sortAlpha -}}
{{- $_ := set $wanted $key (dict "rule" . "verbs" $verbs) -}}
{{- end -}}
{{- $star := dig "* * " "verbs" list $wanted -}}
{{- $rules := list -}}
{{- if $star -}}
{{- $rules = append $rules (dict "apiGroups" (list "*") "resources" (list "*") "verbs" $star) -}}
{{- end -}}
{{- range $key := keys $wanted | sortAlpha -}}
{{- $entry := get $wanted $key -}}
{{- $verbs := list -}}
{{- range $entry.verbs }}{{ if not (has . $star) }}{{ $verbs = append $verbs . }}{{ end }}{{ end -}}
{{- if $verbs -}}
{{- $rule := dict "apiGroups" (list $entry.rule.group) "resources" (list $entry.rule.resource) "verbs" $verbs -}}
{{- if $entry.rule.names }}{{ $_ := set $rule "resourceNames" $entry.rule.names }}{{ end -}}
{{- $rules = append $rules $rule -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "rules" $rules "star" $star) -}}
{{- end }}

{{- define "kubegc.image" -}}
{{ .Values.image.repository }}:{{ default .Chart.AppVersion .Values.image.tag }}
{{- end }}

{{- define "kubegc.labels" -}}
{{ include "kubegc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
