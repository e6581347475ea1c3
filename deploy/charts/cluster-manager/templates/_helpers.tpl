{{- define "cluster-manager.labels" -}}
app: cluster-manager
app.kubernetes.io/name: cluster-manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether this release has an operator. */}}
{{- define "cluster-manager.operator" -}}
true
{{- end }}

{{- /* The reference of an image: list ROOT NAME OVERRIDE. */}}
{{- define "cluster-manager.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- index . 2 | default (printf "%s/%s:%s" $images.registry (index . 1) ($images.tag | default (index . 0).Chart.AppVersion)) -}}
{{- end }}

{{- /* Users of whom the hub approves the certificate requests where the gate ManagedClusterAutoApproval is enabled. */}}
{{- define "cluster-manager.autoApproveUsers" -}}
{{- $users := list }}
{{- if .Values.createBootstrapToken }}
{{- /* The user of the token, and what Open Cluster Management writes for it, which is the user of no token. */}}
{{- $users = list "system:bootstrap:ocmhub" "system:bootstrap:bootstrap-token-ocmhub" }}
{{- end }}
{{- if .Values.createBootstrapSA }}
{{- $users = append $users (printf "system:serviceaccount:%s:agent-registration-bootstrap" .Release.Namespace) }}
{{- end }}
{{- $registration := .Values.clusterManager.registrationConfiguration | default dict }}
{{- concat ($registration.autoApproveUsers | default list) $users | uniq | toJson }}
{{- end }}
