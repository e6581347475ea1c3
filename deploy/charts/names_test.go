package charts

import (
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// HC-05: an agent never runs in the namespace of its operator, which would be deleted with the Klusterlet.
func TestAgentBesideItsOperator(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		namespace, values string
		refused           bool
	}{
		{fleet.NamespaceAgent, "", true},
		{fleet.NamespaceAgent, "klusterlet: {mode: Default, namespace: open-cluster-management-agent}", true},
		{"open-cluster-management-a", "klusterlet: {namespace: open-cluster-management-a}", true},
		{fleet.NamespaceAgent, "klusterlet: {namespace: open-cluster-management-a}", false},
		{fleet.NamespaceAgent, "klusterlet: {create: false}", false},
		{fleet.NamespaceAgent, "noOperator: true", false},
		{"klusterlet-c1", "klusterlet: {mode: Hosted, clusterName: c1}", false},
	} {
		release := installation{chart: "klusterlet", release: "klusterlet", namespace: test.namespace, values: test.values}
		want := `klusterlet.namespace is "` + test.namespace + `", where the operator runs`
		if _, err := release.files(t); (err != nil) != test.refused || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q in %s: %v", test.values, test.namespace, err)
		}
	}
}

// HC-05: names that are made of a long name of a cluster are refused before anything is made, unless others are given.
func TestLongClusterNames(t *testing.T) {
	t.Parallel()
	const (
		most = "a-cluster-with-33-characters-more" // for a namespace
		more = most + "x"
	)
	for _, mode := range []string{"Hosted", "SingletonHosted"} {
		install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+most+"}").objects(t)
		install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+more+", name: k, namespace: open-cluster-management-k}").objects(t)
		got := install("klusterlet", "klusterlet: {mode: "+mode+", clusterName: "+more+"}").fails(t)
		want := `klusterlet.namespace is "open-cluster-management-` + more + `", with 58 characters: it may have 57 at most; ` +
			"set klusterlet.name and klusterlet.namespace"
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", mode, got, want)
		}
	}
}

// CP-03 HC-02 HC-06 HC-08 HC-09 HC-10 HC-11 SC-25: names that YAML reads as numbers or booleans are names, wherever a chart writes them.
func TestNamesThatAreNoStringsInYAML(t *testing.T) {
	t.Parallel()
	type named struct{ release, namespace, value string }
	ordinary := named{"ordinary-release", "ordinary-namespace", "ordinary-value"}
	for _, test := range []struct{ chart, values string }{
		{"capstan-hub", "{enableSelfManagement: true, selfManagementClusterName: NAME, image: NAME, imagePullSecrets: [NAME, {name: NAME}], " +
			"priorityClassName: NAME, apiserver: {externalHostname: NAME}, pvc: {storageClassName: NAME, storageCapacity: NAME}, " +
			"route: {enabled: true}, podDisruptionBudget: {enabled: true}, enableDelegatingAuthentication: true, " +
			"metrics: {serviceMonitor: {enabled: true, interval: NAME, tokenSecret: {name: NAME, key: NAME}}}}"},
		{"capstan-hub", "{loadbalancer: {enabled: true, ip: NAME}, replicas: 2, etcd: {mode: external, servers: ['http://etcd:2379']}}"},
		{"cluster-gateway-addon-manager", "manualSecretManagement: false"},
		{"cluster-gateway-addon-manager", "{manualSecretManagement: false, imagePullSecrets: [NAME, {name: NAME}], " +
			"installByPlacement: {placementName: NAME, placementNamespace: NAME}, " +
			"clusterGateway: {image: NAME, installNamespace: NAME, secretNamespace: NAME}}"},
		{"cluster-manager", "{createNamespace: true, createBootstrapSA: true, priorityClassName: NAME, replicaCount: 2, " +
			"podDisruptionBudget: {enabled: true}, images: {imagePullSecrets: [NAME, {name: NAME}], " +
			"imageCredentials: {createImageCredentials: true}, overrides: {operatorImage: NAME, agentImage: NAME, registrationImage: NAME, " +
			"workImage: NAME, placementImage: NAME, addOnManagerImage: NAME}}}"},
		{"cluster-proxy", "{replicas: 2, networkPolicies: {enabled: true}, userServer: {enabled: true}, featureGates: {gitOpsCluster: true}}"},
		{"cluster-proxy", "{registry: NAME, image: NAME, tag: NAME, imagePullSecrets: [NAME, {name: NAME}], " +
			"installByPlacement: {placementName: NAME, placementNamespace: NAME}, enableServiceProxy: true, " +
			"exposedServices: [{namespace: a, service: b}], exposedServicesConfigMapName: NAME}"},
		{"klusterlet", "{createNamespace: true, priorityClassName: NAME, replicaCount: 2, podDisruptionBudget: {enabled: true}, " +
			"bootstrapHubKubeConfig: k, multiHubBootstrapHubKubeConfigs: [{name: NAME, kubeConfig: a}, {name: other, kubeConfig: b}], " +
			"images: {imagePullSecrets: [NAME, {name: NAME}], imageCredentials: {createImageCredentials: true}, " +
			"overrides: {operatorImage: NAME, registrationImage: NAME, workImage: NAME}}, " +
			"klusterlet: {name: NAME, namespace: NAME, clusterName: NAME}}"},
		{"klusterlet", "{bootstrapHubKubeConfig: k, externalManagedKubeConfig: k, " +
			"klusterlet: {mode: SingletonHosted, name: NAME, clusterName: NAME}}"},
		{"managed-serviceaccount", ""},
		{"managed-serviceaccount", "{agentInstallAll: false, targetCluster: NAME, image: NAME, tag: NAME, " +
			"imagePullSecrets: [NAME, {name: NAME}], prometheus: {enabled: true}, featureGates: {clusterProfile: true}}"},
		{"resource-usage-collect-addon", "{addon: {name: NAME, displayName: NAME, namespace: NAME}, " +
			"rbac: {clusterRoleName: NAME, clusterRoleBindingName: NAME, hubNamespace: NAME}, global: {image: {repository: NAME, tag: NAME}}}"},
	} {
		rendered := func(names named) (shown []string) {
			release := installation{chart: test.chart, release: names.release, namespace: names.namespace,
				values: strings.ReplaceAll(test.values, "NAME", `"`+names.value+`"`)}
			for _, object := range release.objects(t) {
				readable(object)
				shown = append(shown, show(object.Object))
			}
			return shown
		}
		expected := rendered(ordinary)
		for _, odd := range []named{{"no", "0042", "1e3"}, {"1e3", "on", "0042"}, {"0042", "1e3", "y"}} {
			replace := strings.NewReplacer(ordinary.release, odd.release, ordinary.namespace, odd.namespace, ordinary.value, odd.value)
			got := rendered(odd)
			for i, want := range expected {
				if want = replace.Replace(want); !slices.Contains(got, want) {
					t.Errorf("chart %s with %s and %+v: want object %d as\n%s\nin\n%s", test.chart, test.values, odd, i, want, strings.Join(got, "\n"))
				}
			}
		}
	}
}

// readable decodes the data of a Secret, and removes the hash of what a pod reads.
func readable(object unstructured.Unstructured) {
	unstructured.RemoveNestedField(object.Object, "spec", "template", "metadata", "annotations", "checksum/config")
	data, isMap := object.Object["data"].(map[string]any)
	if object.GetKind() != "Secret" || !isMap {
		return
	}
	for key, value := range data {
		data[key] = decoded(value)
	}
}
