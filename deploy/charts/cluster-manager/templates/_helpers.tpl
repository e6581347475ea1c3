{{- define "cluster-manager.labels" -}}
app: cluster-manager
app.kubernetes.io/name: cluster-manager
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether this release has an operator. */}}
{{- define "cluster-manager.operator" -}}
true
{{- end }}

{{- /* "true" if the Secret with the password of the registry is another release's, though this one is to make it. One without a release is not
left out: Helm would delete what this release had made before somebody wrote it anew. */}}
{{- define "cluster-manager.otherPullSecret" -}}
{{- if (.Values.images.imageCredentials | default dict).createImageCredentials }}
{{- with lookup "v1" "Secret" .Release.Namespace "open-cluster-management-image-pull-credentials" }}
{{- $annotations := dig "metadata" "annotations" dict . }}
{{- $name := get $annotations "meta.helm.sh/release-name" }}
{{- if and $name (not (and (eq $name $.Release.Name)
  (eq (get $annotations "meta.helm.sh/release-namespace") $.Release.Namespace))) -}}
true
{{- end }}
{{- end }}
{{- end }}
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
