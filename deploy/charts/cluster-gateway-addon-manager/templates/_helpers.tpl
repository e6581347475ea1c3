{{- define "gateway.labels" -}}
app.kubernetes.io/name: cluster-gateway
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "gateway.namespace" -}}
{{ .Values.clusterGateway.installNamespace | default .Release.Namespace }}
{{- end }}

{{- define "gateway.subject" -}}
- kind: ServiceAccount
  name: cluster-gateway
  namespace: {{ include "gateway.namespace" . | quote }}
{{- end }}

{{- define "gateway.image" -}}
{{ .Values.clusterGateway.image | default (printf "ghcr.io/capstan-io/capstan-hub:%s" .Chart.AppVersion) }}
{{- end }}

{{- /* What all pods have alike. */}}
{{- define "gateway.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ kindIs "map" . | ternary . (dict "name" .) | dig "name" "" | quote }}
{{- end }}
{{- end }}
securityContext:
  runAsNonRoot: true
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* What all containers have alike. */}}
{{- define "gateway.container" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
{{- with .Values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Refuses to take over an object of another manager, before anything is changed: list ROOT OBJECT. */}}
{{- define "gateway.refuse" -}}
{{- $object := index . 1 }}
{{- $annotations := dig "metadata" "annotations" dict $object }}
{{- $release := get $annotations "meta.helm.sh/release-name" | default "cluster-gateway" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" | default (index . 0).Release.Namespace }}
{{- fail (printf "%s %s is of another manager, such as that of Open Cluster Management: uninstall its release first, %s; docs/migrating.md says how"
  $object.kind $object.metadata.name (printf "helm uninstall %s -n %s" $release $namespace)) }}
{{- end }}

{{- /* Refuses an add-on of which another manager installs something on clusters. */}}
{{- define "gateway.checkManager" -}}
{{- with lookup "addon.open-cluster-management.io/v1beta1" "ClusterManagementAddOn" "" "cluster-gateway" }}
{{- if ne (dig "metadata" "annotations" "capstan.io/built-in" "" .) "true" }}
{{- include "gateway.refuse" (list $ .) }}
{{- end }}
{{- end }}
{{- /* The Deployment there cannot become that of the chart: its selector is another one. */}}
{{- with lookup "apps/v1" "Deployment" (include "gateway.namespace" .) "cluster-gateway-addon-manager" }}
{{- if ne (dig "spec" "selector" "matchLabels" "app.kubernetes.io/name" "" .) "cluster-gateway-addon-manager" }}
{{- include "gateway.refuse" (list $ .) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* Fails, if values ask for what is not there. */}}
{{- define "gateway.check" -}}
{{- if ne (empty .Values.installByPlacement.placementName) (empty .Values.installByPlacement.placementNamespace) }}
{{- fail "installByPlacement: a Placement has a name and a namespace: set placementName and placementNamespace, or neither" }}
{{- end }}
{{- if and .Values.manualSecretManagement .Values.installByPlacement.placementName }}
{{- fail "installByPlacement: with manualSecretManagement: true the add-on is not installed: set that to false, or leave the Placement out" }}
{{- end }}
{{- end }}
