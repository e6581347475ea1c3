{{- define "managed-serviceaccount.labels" -}}
app: managed-serviceaccount
app.kubernetes.io/name: managed-serviceaccount
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Refuses to take over an object of another manager, before anything is changed: list ROOT OBJECT. */}}
{{- define "managed-serviceaccount.refuse" -}}
{{- $object := index . 1 }}
{{- $annotations := dig "metadata" "annotations" dict $object }}
{{- $release := get $annotations "meta.helm.sh/release-name" | default "managed-serviceaccount" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" | default (index . 0).Release.Namespace }}
{{- fail (printf "%s %s is of another manager, such as that of Open Cluster Management: uninstall its release first, %s; docs/migrating.md says how"
  $object.kind $object.metadata.name (printf "helm uninstall %s -n %s" $release $namespace)) }}
{{- end }}

{{- /* Refuses an add-on that agents do not have built in. */}}
{{- define "managed-serviceaccount.checkManager" -}}
{{- with lookup "addon.open-cluster-management.io/v1beta1" "ClusterManagementAddOn" "" "managed-serviceaccount" }}
{{- if ne (dig "metadata" "annotations" "capstan.io/built-in" "" .) "true" }}
{{- include "managed-serviceaccount.refuse" (list $ .) }}
{{- end }}
{{- end }}
{{- /* The Deployment there cannot become that of the chart: its selector is another one. */}}
{{- with lookup "apps/v1" "Deployment" .Release.Namespace "managed-serviceaccount-addon-manager" }}
{{- if ne (dig "spec" "selector" "matchLabels" "app" "" .) "managed-serviceaccount" }}
{{- include "managed-serviceaccount.refuse" (list $ .) }}
{{- end }}
{{- end }}
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
