{{- define "capstan-hub.labels" -}}
app: multicluster-controlplane
app.kubernetes.io/name: multicluster-controlplane
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* The name of what is not in the namespace of the release. */}}
{{- define "capstan-hub.clusterName" -}}
open-cluster-management:multicluster-controlplane:{{ .Release.Namespace }}
{{- end }}

{{- /* Fails, if values contradict each other. */}}
{{- define "capstan-hub.check" -}}
{{- with .Values }}
{{- if and (gt (int .replicas) 1) (ne .etcd.mode "external") }}
{{- fail (printf "replicas: %d replicas need an etcd that they share: set etcd.mode external with etcd.servers, or replicas to 1" (int .replicas)) }}
{{- end }}
{{- if has .selfManagementClusterName (list "default" "kube-system" "kube-public" "kube-node-lease" "open-cluster-management" "open-cluster-management-hub" "open-cluster-management-addon" "open-cluster-management-credentials" "managed-clusters" "registration" "work") }}
{{- fail (printf "selfManagementClusterName: %s is a name that the hub has for itself; choose another name" .selfManagementClusterName) }}
{{- end }}
{{- if and (eq .storage.type "hostPath") (not .storage.hostPath) }}
{{- fail "storage.hostPath is required with storage.type hostPath: a folder of the node that the user 65532 may write" }}
{{- end }}
{{- if and .storage.hostPath (ne .storage.type "hostPath") }}
{{- fail (printf "storage.hostPath has no effect with storage.type %s: set storage.type hostPath, or leave it out" .storage.type) }}
{{- end }}
{{- $exposed := list }}
{{- if .route.enabled }}{{ $exposed = append $exposed "route" }}{{ end }}
{{- if .loadbalancer.enabled }}{{ $exposed = append $exposed "loadbalancer" }}{{ end }}
{{- if .nodeport.enabled }}{{ $exposed = append $exposed "nodeport" }}{{ end }}
{{- if gt (len $exposed) 1 }}
{{- fail (printf "%s: enable at most one of them" (join ", " $exposed)) }}
{{- end }}
{{- if and .nodeport.enabled (not .apiserver.externalHostname) }}
{{- fail "apiserver.externalHostname is required with nodeport.enabled: the name or address of the nodes for agents" }}
{{- end }}
{{- if and .apiserver.ca (not .apiserver.cakey) }}
{{- fail "apiserver.cakey is required with apiserver.ca: the hub signs certificates with it" }}
{{- end }}
{{- if and .apiserver.cakey (not .apiserver.ca) }}
{{- fail "apiserver.ca is required with apiserver.cakey" }}
{{- end }}
{{- if eq .etcd.mode "external" }}
{{- if not .etcd.servers }}
{{- fail "etcd.servers is required with etcd.mode external: the URLs of the etcd" }}
{{- end }}
{{- range $name := list "ca" "cert" "certkey" }}
{{- if and (not (get $.Values.etcd $name)) (contains "https://" (join " " $.Values.etcd.servers)) }}
{{- fail (printf "etcd.%s is required with https:// in etcd.servers" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The name by which agents reach the hub. Empty: the hub finds it out. */}}
{{- define "capstan-hub.host" -}}
{{- if .Values.apiserver.externalHostname }}
{{- .Values.apiserver.externalHostname }}
{{- else if not (or .Values.route.enabled .Values.loadbalancer.enabled) }}
{{- printf "multicluster-controlplane.%s.svc" .Release.Namespace }}
{{- end }}
{{- end }}
