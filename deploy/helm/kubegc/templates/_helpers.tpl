{{- define "kubegc.selector" -}}
app.kubernetes.io/name: kubegc
app.kubernetes.io/component: garbage-collector
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "kubegc.labels" -}}
{{ include "kubegc.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
