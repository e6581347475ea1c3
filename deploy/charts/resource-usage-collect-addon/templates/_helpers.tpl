{{- define "resource-usage-collect.labels" -}}
app.kubernetes.io/name: resource-usage-collect
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The ClusterRole of agents on the hub. */}}
{{- define "resource-usage-collect.role" -}}
{{ .Values.rbac.clusterRoleName | default (printf "open-cluster-management:%s:agent" .Values.addon.name) }}
{{- end }}

{{- /* What lets the hub give it to them. */}}
{{- define "resource-usage-collect.hub" -}}
{{ .Values.rbac.clusterRoleBindingName | default (printf "open-cluster-management:%s:hub" .Values.addon.name) }}
{{- end }}
