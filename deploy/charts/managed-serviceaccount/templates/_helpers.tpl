{{- define "managed-serviceaccount.labels" -}}
app: managed-serviceaccount
app.kubernetes.io/name: managed-serviceaccount
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Refuses values that ask for what is not there. */}}
{{- define "managed-serviceaccount.check" -}}
{{- if and .Values.agentInstallAll .Values.targetCluster }}
{{- fail (printf "targetCluster: %s is one of all clusters, on which agentInstallAll enables the add-on: set agentInstallAll to false, or targetCluster to \"\"" .Values.targetCluster) }}
{{- end }}
{{- end }}

{{- /* The user that the manager is on the hub. */}}
{{- define "managed-serviceaccount.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:managed-serviceaccount
{{- end }}
