{{- define "klusterlet.labels" -}}
app: klusterlet
app.kubernetes.io/name: klusterlet
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- /* Whether the agent runs on another cluster than the one that it is for. */}}
{{- define "klusterlet.hosted" -}}
{{- has .Values.klusterlet.mode (list "Hosted" "SingletonHosted") }}
{{- end }}

{{- /* Whether this release has an operator. A hosting cluster has one already, which runs the agents of several clusters. */}}
{{- define "klusterlet.operator" -}}
{{- and (not .Values.noOperator) (ne (include "klusterlet.hosted" .) "true") }}
{{- end }}

{{- define "klusterlet.cluster" -}}
{{- required "klusterlet.clusterName is required in the hosted modes, where klusterlet.name and klusterlet.namespace are made of it" .Values.klusterlet.clusterName }}
{{- end }}

{{- define "klusterlet.name" -}}
{{- if .Values.klusterlet.name }}
{{- .Values.klusterlet.name }}
{{- else if eq (include "klusterlet.hosted" .) "true" }}
{{- printf "klusterlet-%s" (include "klusterlet.cluster" .) }}
{{- else -}}
klusterlet
{{- end }}
{{- end }}

{{- /* The namespace of the agent on the managed cluster. */}}
{{- define "klusterlet.namespace" -}}
{{- if .Values.klusterlet.namespace }}
{{- .Values.klusterlet.namespace }}
{{- else if eq (include "klusterlet.hosted" .) "true" }}
{{- printf "open-cluster-management-%s" (include "klusterlet.cluster" .) }}
{{- else -}}
open-cluster-management-agent
{{- end }}
{{- end }}

{{- /* The namespace on this cluster where the agent runs and finds its credentials. */}}
{{- define "klusterlet.agentNamespace" -}}
{{- if eq (include "klusterlet.hosted" .) "true" }}
{{- include "klusterlet.name" . }}
{{- else }}
{{- include "klusterlet.namespace" . }}
{{- end }}
{{- end }}

{{- /* Refuses what the operator, or the API, would refuse after parts of it have been made. */}}
{{- define "klusterlet.check" -}}
{{- range $value, $most := dict "name" 63 "namespace" 57 }}
{{- $text := include (printf "klusterlet.%s" $value) $ }}
{{- if gt (len $text) $most }}
{{- fail (printf "klusterlet.%s is %q, with %d characters: it may have %d at most; set klusterlet.name and klusterlet.namespace"
  $value $text (len $text) $most) }}
{{- end }}
{{- end }}
{{- if and (eq (include "klusterlet.operator" .) "true") (eq (include "klusterlet.agentNamespace" .) .Release.Namespace) }}
{{- fail (printf "klusterlet.namespace is %q, where the operator runs, and would be deleted with the Klusterlet: %s" .Release.Namespace
  "set another klusterlet.namespace, or install the chart in another namespace") }}
{{- end }}
{{- include "klusterlet.checkHubs" . }}
{{- end }}

{{- /* Refuses one of several hubs, which the agent would not look at, if there is nothing else to join with. */}}
{{- define "klusterlet.checkHubs" -}}
{{- $hubs := .Values.multiHubBootstrapHubKubeConfigs | default list }}
{{- $chosen := (.Values.klusterlet.registrationConfiguration | default dict).bootstrapKubeConfigs }}
{{- if and (eq (len $hubs) 1) (not (or .Values.bootstrapHubKubeConfig .Values.grpcConfig $chosen)) }}
{{- $name := (first $hubs).name }}
{{- if ne $name "bootstrap-hub-kubeconfig" }}
{{- fail (printf "multiHubBootstrapHubKubeConfigs has %s alone: list two or more, or set bootstrapHubKubeConfig" $name) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" if an object that the chart makes is there already, and not of this release: list ROOT OBJECT. It stays as it is. */}}
{{- define "klusterlet.ofAnother" -}}
{{- $release := (index . 0).Release }}
{{- with index . 1 }}
{{- $annotations := dig "metadata" "annotations" dict . }}
{{- if not (and (eq (get $annotations "meta.helm.sh/release-name") $release.Name)
  (eq (get $annotations "meta.helm.sh/release-namespace") $release.Namespace)) -}}
true
{{- end }}
{{- end }}
{{- end }}

{{- /* "true" if the Secret with the password of the registry is another release's, though this one is to make it. One without a release is not
left out: Helm would delete what this release had made before somebody wrote it anew. */}}
{{- define "klusterlet.otherPullSecret" -}}
{{- if (.Values.images.imageCredentials | default dict).createImageCredentials }}
{{- $existing := lookup "v1" "Secret" .Release.Namespace "open-cluster-management-image-pull-credentials" }}
{{- if dig "metadata" "annotations" "meta.helm.sh/release-name" "" $existing }}
{{- include "klusterlet.ofAnother" (list . $existing) }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The reference of an image: list ROOT OVERRIDE. */}}
{{- define "klusterlet.image" -}}
{{- $images := (index . 0).Values.images -}}
{{- index . 1 | default (printf "%s/capstan-agent:%s" $images.registry ($images.tag | default (index . 0).Chart.AppVersion)) -}}
{{- end }}

{{- /* spec.registrationConfiguration: with several kubeconfigs to join with, or nothing but a gRPC server, the agent is told to use them. */}}
{{- define "klusterlet.registrationConfiguration" -}}
{{- $registration := deepCopy (.Values.klusterlet.registrationConfiguration | default dict) }}
{{- if and (gt (len (.Values.multiHubBootstrapHubKubeConfigs | default list)) 1) (not $registration.bootstrapKubeConfigs) }}
{{- $secrets := list }}
{{- range .Values.multiHubBootstrapHubKubeConfigs }}
{{- $secrets = append $secrets (dict "name" .name) }}
{{- end }}
{{- $_ := set $registration "bootstrapKubeConfigs" (dict "type" "LocalSecrets" "localSecretsConfig" (dict "kubeConfigSecrets" $secrets)) }}
{{- $named := list }}
{{- range $registration.featureGates }}
{{- $named = append $named .feature }}
{{- end }}
{{- if not (has "MultipleHubs" $named) }}
{{- $_ := set $registration "featureGates"
  (append ($registration.featureGates | default list) (dict "feature" "MultipleHubs" "mode" "Enable")) }}
{{- end }}
{{- end }}
{{- if and .Values.grpcConfig (not .Values.bootstrapHubKubeConfig) (not $registration.registrationDriver) }}
{{- $_ := set $registration "registrationDriver" (dict "authType" "grpc") }}
{{- end }}
{{- toJson $registration }}
{{- end }}
