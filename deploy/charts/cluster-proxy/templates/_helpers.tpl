{{- define "cluster-proxy.labels" -}}
app.kubernetes.io/name: cluster-proxy
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cluster-proxy.subject" -}}
- kind: ServiceAccount
  name: cluster-proxy
  namespace: {{ .Release.Namespace }}
{{- end }}

{{- /* The user that the process is on the hub. */}}
{{- define "cluster-proxy.user" -}}
system:serviceaccount:{{ .Release.Namespace }}:cluster-proxy
{{- end }}

{{- /* "true" if ClusterProfiles say how clusters are reached. The second name of the feature gate is that of Open Cluster Management. */}}
{{- define "cluster-proxy.clusterProfile" -}}
{{- with .Values.featureGates }}
{{- if or .clusterProfile .clusterProfileAccessProvider -}}
true
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" if Argo CD knows the clusters of GitOpsClusters. */}}
{{- define "cluster-proxy.gitOpsCluster" -}}
{{- with .Values.featureGates }}
{{- if .gitOpsCluster -}}
true
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" if there is a user server: by itself, or because something else names it. */}}
{{- define "cluster-proxy.userServer" -}}
{{- if or .Values.userServer.enabled (include "cluster-proxy.clusterProfile" .) (include "cluster-proxy.gitOpsCluster" .) -}}
true
{{- end }}
{{- end }}

{{- /* Refuses values that ask for what is not there. */}}
{{- define "cluster-proxy.check" -}}
{{- range $gate, $enabled := .Values.featureGates }}
{{- if and $enabled (not $.Values.enableKubeApiProxy) }}
{{- fail (printf "enableKubeApiProxy: false: with featureGates.%s, clients reach the API servers of clusters: set the first to true, or the second to false" $gate) }}
{{- end }}
{{- end }}
{{- if not .Values.enableImpersonation }}
{{- fail "enableImpersonation: false: users of the hub are always impersonated on clusters: set it to true" }}
{{- end }}
{{- if and .Values.exposedServices (not .Values.enableServiceProxy) }}
{{- fail "exposedServices: no service is reached with enableServiceProxy: false: set that to true, or exposedServices to []" }}
{{- end }}
{{- if ne (empty .Values.installByPlacement.placementName) (empty .Values.installByPlacement.placementNamespace) }}
{{- fail "installByPlacement: a Placement has a name and a namespace: set placementName and placementNamespace, or neither" }}
{{- end }}
{{- end }}
