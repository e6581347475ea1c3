{{- define "cluster-proxy.labels" -}}
app.kubernetes.io/name: cluster-proxy
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "cluster-proxy.subject" -}}
- kind: ServiceAccount
  name: cluster-proxy
  namespace: {{ .Release.Namespace | quote }}
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

{{- /* Refuses to take over an object of another manager, before anything is changed: list ROOT OBJECT. */}}
{{- define "cluster-proxy.refuse" -}}
{{- $object := index . 1 }}
{{- $annotations := dig "metadata" "annotations" dict $object }}
{{- $release := get $annotations "meta.helm.sh/release-name" | default "cluster-proxy" }}
{{- $namespace := get $annotations "meta.helm.sh/release-namespace" | default (index . 0).Release.Namespace }}
{{- fail (printf "%s %s is of another manager, such as that of Open Cluster Management: uninstall its release first, %s; docs/migrating.md says how"
  $object.kind $object.metadata.name (printf "helm uninstall %s -n %s" $release $namespace)) }}
{{- end }}

{{- /* Refuses an add-on that agents do not have built in. */}}
{{- define "cluster-proxy.checkManager" -}}
{{- with lookup "addon.open-cluster-management.io/v1beta1" "ClusterManagementAddOn" "" "cluster-proxy" }}
{{- if ne (dig "metadata" "annotations" "capstan.io/built-in" "" .) "true" }}
{{- include "cluster-proxy.refuse" (list $ .) }}
{{- end }}
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
