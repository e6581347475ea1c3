package charts_test

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"maps"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/deploy/charts"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// The charts that the command line installs without Helm, each with the files of its CustomResourceDefinitions.
var installed = map[string][]string{
	"cluster-manager": {"crds/clustermanagers.yaml"}, "klusterlet": {"crds/klusterlets.yaml"}, "capstan-hub": nil,
}

// CA-10 CA-14 CA-16 HC-01 HC-03 HC-05 SC-24: what the command line installs is what Helm makes of the chart, whatever the values are.
func TestInstaller(t *testing.T) {
	t.Parallel()
	more := map[string][]string{
		"cluster-manager": {
			"{}",
			"{createBootstrapSA: true, createBootstrapToken: true}",
			"{replicaCount: 0}",
			"{createBootstrapSA: true, clusterManager: {registrationConfiguration: {autoApproveUsers: [a, a]}}}",
			"{clusterManager: {registrationConfiguration: {autoApproveUsers: [a, a]}}}",
			"{clusterManager: {registrationConfiguration: null, workConfiguration: null, resourceRequirement: null}}",
			"{createBootstrapSA: true, clusterManager: {registrationConfiguration: null}}",
			"{clusterManager: {deployOption: {mode: Hosted}}}",
			"{clusterManager: {mode: Hosted, deployOption: {default: {workWebhookConfiguration: {bindConfiguration: {port: 9443}}}}}}",
			"{securityContext: {runAsUser: 1000650000}}",
			"{securityContext: {capabilities: null}, resources: {requests: null}}",
			"{podSecurityContext: {fsGroup: 5}, affinity: null, nodeSelector: null}",
			"{images: {imageCredentials: {createImageCredentials: true, userName: a<b, password: 'c&d'}}}",
			"{images: {overrides: null}}",
			"{global: {some: value}}",
		},
		"klusterlet": {
			"{}",
			"{images: {overrides: null}}",
			"{createNamespace: true, bootstrapHubKubeConfig: a, klusterlet: {clusterName: '007'}}",
			"{noOperator: true, enableSyncLabels: true, replicaCount: 2, klusterlet: {mode: Default}}",
			"{noOperator: true, createNamespace: true, images: {imageCredentials: {createImageCredentials: true}}}",
			"{externalManagedKubeConfig: m, grpcConfig: g, klusterlet: {mode: SingletonHosted, name: one, namespace: x, clusterName: c}}",
			"{klusterlet: {mode: Hosted, name: one, namespace: x}}",
			"{klusterlet: {mode: Hosted, name: one, clusterName: c}}",
			"{klusterlet: {create: false, mode: Hosted, clusterName: c}}",
			"{bootstrapHubKubeConfig: k, multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}]}",
			"{grpcConfig: g, multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}]}",
			"{multiHubBootstrapHubKubeConfigs: [{name: bootstrap-hub-kubeconfig, kubeConfig: a}]}",
			"{multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}], klusterlet: {registrationConfiguration: " +
				"{bootstrapKubeConfigs: {type: LocalSecrets, localSecretsConfig: {kubeConfigSecrets: [{name: one}, {name: two}]}}}}}",
			"{multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}], klusterlet: {create: false}}",
			"{grpcConfig: g, multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}, {name: two, kubeConfig: b}], " +
				"klusterlet: {registrationConfiguration: {featureGates: [{feature: ClusterClaim, mode: Disable}]}}}",
			"{multiHubBootstrapHubKubeConfigs: [{name: one, kubeConfig: a}, {name: two, kubeConfig: b}], " +
				"klusterlet: {registrationConfiguration: {bootstrapKubeConfigs: {}}}}",
			"{grpcConfig: g, klusterlet: {registrationConfiguration: {registrationDriver: {}}}}",
			"{grpcConfig: g, klusterlet: {registrationConfiguration: {registrationDriver: {authType: csr}}}}",
			"{priorityClassName: own, noOperator: true}",
			"{klusterlet: {registrationConfiguration: {clientCertExpirationSeconds: 31536000}}}",
			"{klusterlet: {hubApiServerHostAlias: {hostname: h, ip: 10.0.0.1}, externalServerURLs: [{url: 'https://a'}]}}",
		},
		"capstan-hub": {
			"{}",
			"{enableSelfManagement: true, enableDelegatingAuthentication: true}",
			"{replicas: 3, affinity: {nodeAffinity: {}}, etcd: {mode: external, servers: ['http://a:2379']}, storage: {type: emptyDir}}",
			"{replicas: 2, podDisruptionBudget: {enabled: true}, etcd: {mode: external, servers: ['http://a:2379'], ca: A}}",
			"{etcd: {mode: external, servers: ['http://a:2379']}, metrics: {serviceMonitor: {enabled: true, labels: {team: a}}}}",
			"{podAnnotations: {a: b}, podLabels: {c: d}, serviceAnnotations: {e: f}}",
			"{securityContext: {capabilities: null}, resources: {requests: null}, tolerations: null, imagePullSecrets: null}",
			"{pvc: {selector: null, storageClassName: null}, apiserver: {ca: 'a<b', cakey: 'c&d'}, global: {some: value}}",
		},
	}
	for chart := range installed {
		t.Run(chart, func(t *testing.T) {
			t.Parallel()
			for _, values := range charts.TriedValues(t, chart) {
				content, err := yaml.Marshal(values)
				if err != nil {
					t.Fatal(err)
				}
				compare(t, chart, string(content))
			}
			for _, values := range more[chart] {
				compare(t, chart, values)
			}
			if values, err := os.ReadFile("testdata/ocm/" + chart + ".yaml"); err == nil {
				compare(t, chart, string(values))
			} else if chart != "capstan-hub" { // Open Cluster Management has it not
				t.Error(err)
			}
		})
	}
}

func compare(t *testing.T, chart, values string) {
	t.Helper()
	rendered, err := charts.Rendered(t, chart, values)
	if err != nil {
		t.Fatalf("%s: %v", values, err)
	}
	want := byName(t, append(rendered, definitions(t, chart)...))
	built, err := build(t, chart, values)
	if err != nil {
		t.Errorf("%s: %v", values, err)
		return
	}
	got := byName(t, built)
	if names := slices.Sorted(maps.Keys(got)); !slices.Equal(names, slices.Sorted(maps.Keys(want))) {
		t.Errorf("%s: the installer builds\n%v\nand Helm\n%v", values, names, slices.Sorted(maps.Keys(want)))
	}
	for name, object := range got {
		if want[name] != nil && !reflect.DeepEqual(object, want[name]) {
			t.Errorf("%s: %s is\n%s\nand of Helm\n%s", values, name, text(object), text(want[name]))
		}
	}
}

// build returns what the installer makes of a values file.
func build(t *testing.T, chart, values string) ([]unstructured.Unstructured, error) {
	t.Helper()
	given := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &given); err != nil {
		t.Fatal(err)
	}
	built, err := installer.Objects(chart, given)
	if chart == "capstan-hub" {
		built, err = installer.StandaloneHub{Namespace: "multicluster-controlplane", Values: given, KnowsSleep: true}.Objects()
	}
	var objects []unstructured.Unstructured
	for _, object := range built {
		objects = append(objects, *object)
	}
	return objects, err
}

// definitions are the CustomResourceDefinitions of a chart, which Helm installs before all else.
func definitions(t *testing.T, chart string) (crds []unstructured.Unstructured) {
	t.Helper()
	for _, file := range installed[chart] {
		content, err := charts.Files.ReadFile(chart + "/" + file)
		if err != nil {
			t.Fatal(err)
		}
		crd := unstructured.Unstructured{}
		if err := yaml.Unmarshal(content, &crd.Object); err != nil {
			t.Fatal(err)
		}
		crds = append(crds, crd)
	}
	return crds
}

// byName returns objects without what is for Helm alone, and without what differs each time.
func byName(t *testing.T, objects []unstructured.Unstructured) map[string]any {
	t.Helper()
	named := map[string]any{}
	for _, object := range objects {
		for field, entries := range map[string]map[string]string{"annotations": object.GetAnnotations(), "labels": object.GetLabels()} {
			maps.DeleteFunc(entries, func(name, _ string) bool { return strings.Contains(name, "helm.sh/") })
			if by := "app.kubernetes.io/managed-by"; entries[by] == "Helm" {
				entries[by] = "capstan"
			}
			unstructured.RemoveNestedField(object.Object, "metadata", field)
			if len(entries) > 0 {
				if err := unstructured.SetNestedStringMap(object.Object, entries, "metadata", field); err != nil {
					t.Fatal(err)
				}
			}
		}
		if object.GetName() == "bootstrap-token-ocmhub" {
			removeRandom(t, object)
		}
		if object.GetName() == installer.StandaloneHubConfig {
			removeGenerated(t, object)
		}
		var plain any
		if err := json.Unmarshal([]byte(text(object.Object)), &plain); err != nil {
			t.Fatal(err)
		}
		named[path.Join(object.GetKind(), object.GetNamespace(), object.GetName())] = plain
	}
	return named
}

// removeRandom takes the secret out of a bootstrap token that was made at random, and is not that of testdata/cluster-manager.values.yaml.
func removeRandom(t *testing.T, token unstructured.Unstructured) {
	t.Helper()
	secret, _, _ := unstructured.NestedString(token.Object, "data", "token-secret")
	if secret == base64.StdEncoding.EncodeToString([]byte("0123456789abcdef")) {
		return
	}
	if len(secret) != 24 { // 16 bytes in base64
		t.Errorf("the token is %q", secret)
	}
	unstructured.RemoveNestedField(token.Object, "data", "token-secret")
}

// removeGenerated takes a CA that was made for a hub, and not given, out of its configuration.
func removeGenerated(t *testing.T, config unstructured.Unstructured) {
	t.Helper()
	for _, key := range []string{installer.KeyStandaloneCA, installer.KeyStandaloneCAKey} {
		encoded, _, _ := unstructured.NestedString(config.Object, "data", key)
		if content, err := base64.StdEncoding.DecodeString(encoded); err == nil && strings.HasPrefix(string(content), "-----BEGIN ") {
			if err := unstructured.SetNestedField(config.Object, "generated", "data", key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// CA-14 SC-24: a hub without a CA of the user's has one made, if that is asked for, and keeps it.
func TestInstallerGeneratesCA(t *testing.T) {
	t.Parallel()
	hub := installer.StandaloneHub{Namespace: "hub", Values: map[string]any{"apiserver": map[string]any{"generateCA": true}}}
	files := func() (ca, key []byte) {
		objects, err := hub.Objects()
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range objects {
			if object.GetName() != installer.StandaloneHubConfig {
				continue
			}
			secret := &corev1.Secret{}
			if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, secret); err != nil {
				t.Fatal(err)
			}
			ca, key = secret.Data[installer.KeyStandaloneCA], secret.Data[installer.KeyStandaloneCAKey]
		}
		return ca, key
	}
	ca, key := files()
	pair, err := tls.X509KeyPair(ca, key)
	if err != nil {
		t.Fatal(err)
	}
	if !pair.Leaf.IsCA || pair.Leaf.Subject.CommonName != "multicluster-controlplane" || time.Until(pair.Leaf.NotAfter) < 9*365*24*time.Hour {
		t.Errorf("the CA is %+v", pair.Leaf)
	}
	if other, _ := files(); bytes.Equal(other, ca) {
		t.Error("two hubs have the same CA")
	}
	hub.CA, hub.CAKey = ca, key
	if again, keyAgain := files(); !bytes.Equal(again, ca) || !bytes.Equal(keyAgain, key) {
		t.Error("the CA does not stay")
	}
}

// CA-14: a pod of a hub takes no user where the cluster gives it one, and does not sleep where that is not known.
func TestInstallerOlderClusters(t *testing.T) {
	t.Parallel()
	hub := installer.StandaloneHub{Namespace: "hub", AssignsUsers: true, Values: map[string]any{
		"replicas": 2, "etcd": map[string]any{"mode": "external", "servers": []any{"http://etcd:2379"}}}}
	objects, err := hub.Objects()
	if err != nil {
		t.Fatal(err)
	}
	for _, object := range objects {
		if object.GetKind() != "Deployment" {
			continue
		}
		pod := text(object.Object)
		if strings.Contains(pod, "fsGroup") || strings.Contains(pod, "preStop") || !strings.Contains(pod, `"runAsNonRoot":true`) {
			t.Errorf("the Deployment is %s", pod)
		}
	}
}

func text(object any) string {
	content, _ := json.Marshal(object)
	return string(content)
}

// CA-10 HC-01 HC-05: the command line refuses the values that Helm refuses, and says the same of them.
func TestInstallerRefuses(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ chart, values, want string }{
		{"cluster-manager", "clusterManger: {}", "additional properties 'clusterManger' not allowed"},
		{"cluster-manager", "replicaCount: many", "at '/replicaCount': got string, want integer"},
		{"cluster-manager", "replicaCount: -1", "at '/replicaCount': minimum: got -1, want 0"},
		{"cluster-manager", "replicaCount: 1.5", "at '/replicaCount': got number, want integer"},
		{"cluster-manager", "images: {tag: 1.3}", "at '/images/tag': got number, want string"},
		{"cluster-manager", "bootstrapTokenSecret: ocmhub.a", "does not match pattern '^([a-z0-9]{16})?$'"},
		{"cluster-manager", "images: none", "at '/images': got string, want object"},
		{"cluster-manager", "clusterManager: {mode: hosted}", "at '/clusterManager/mode': value must be one of 'Default', 'Hosted'"},
		{"cluster-manager", "clusterManager: {registrationConfiguration: {featureGates: [{feature: A, mode: On}]}}",
			"at '/clusterManager/registrationConfiguration/featureGates/0/mode'"},
		{"cluster-manager", "images: {imagePullSecrets: [3]}", "at '/images/imagePullSecrets/0': got number, want string"},
		{"cluster-manager", "{replicaCount: many, enableSyncLabels: 1}", "at '/replicaCount': got string, want integer"},
		{"klusterlet", "noOperator: yess", "at '/noOperator': got string, want boolean"},
		{"klusterlet", "klusterlet: {mode: Detached}", "at '/klusterlet/mode': value must be one of"},
		{"klusterlet", "multiHubBootstrapHubKubeConfigs: [{name: hub1}]", "missing property 'kubeConfig'"},
		{"klusterlet", "multiHubBootstrapHubKubeConfigs: [{name: hub1, kubeConfig: k}]",
			"multiHubBootstrapHubKubeConfigs has hub1 alone: list two or more, or set bootstrapHubKubeConfig"},
		{"klusterlet", "klusterlet: {mode: Hosted}", "klusterlet.clusterName is required in the hosted modes"},
		{"klusterlet", "klusterlet: {mode: Hosted, name: one}", "klusterlet.clusterName is required in the hosted modes"},
		{"klusterlet", "klusterlet: {namespace: open-cluster-management}",
			"klusterlet.namespace is \"open-cluster-management\", where the operator runs"},
		{"klusterlet", "klusterlet: {mode: Hosted, clusterName: a-cluster-with-a-long-name-in-berlin}",
			"klusterlet.namespace is \"open-cluster-management-a-cluster-with-a-long-name-in-berlin\", with 60 characters: " +
				"it may have 57 at most; set klusterlet.name and klusterlet.namespace"},
		{"klusterlet", "klusterlet: {mode: SingletonHosted, clusterName: a-cluster-with-a-longer-name-than-many-others-in-berlin}",
			"klusterlet.name is \"klusterlet-a-cluster-with-a-longer-name-than-many-others-in-berlin\", with 66 characters"},
		{"capstan-hub", "replica: 1", "additional properties 'replica' not allowed"},
		{"capstan-hub", "replicas: 2", "replicas: 2 replicas need an etcd that they share: set etcd.mode external"},
		{"capstan-hub", "selfManagementClusterName: kube-system", "selfManagementClusterName: kube-system is a name that the hub has for itself"},
		{"capstan-hub", "storage: {type: hostPath}", "storage.hostPath is required with storage.type hostPath"},
		{"capstan-hub", "storage: {hostPath: /hub}", "storage.hostPath has no effect with storage.type persistentVolumeClaim"},
		{"capstan-hub", "{route: {enabled: true}, nodeport: {enabled: true}}", "route, nodeport: enable at most one of them"},
		{"capstan-hub", "nodeport: {enabled: true}", "apiserver.externalHostname is required with nodeport.enabled"},
		{"capstan-hub", "apiserver: {ca: A}", "apiserver.cakey is required with apiserver.ca"},
		{"capstan-hub", "apiserver: {cakey: A}", "apiserver.ca is required with apiserver.cakey"},
		{"capstan-hub", "etcd: {mode: external}", "etcd.servers is required with etcd.mode external"},
		{"capstan-hub", "etcd: {mode: external, servers: ['https://e'], ca: A, cert: B}", "etcd.certkey is required with https:// in etcd.servers"},
	} {
		_, helm := charts.Rendered(t, test.chart, test.values)
		if helm == nil || !strings.Contains(helm.Error(), test.want) {
			t.Errorf("%s: Helm says %v, want %s", test.values, helm, test.want)
		}
		_, err := build(t, test.chart, test.values)
		if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v, want %s", test.values, err, test.want)
		}
	}
	for chart, sections := range map[string][]string{"cluster-manager": {"images", "clusterManager"}, "klusterlet": {"images", "klusterlet"},
		"capstan-hub": {"apiserver", "etcd", "storage", "tls"}} {
		for _, section := range sections {
			values := section + ": # with nothing below"
			if _, err := charts.Rendered(t, chart, values); err == nil {
				t.Errorf("Helm takes %s", values)
			}
			if _, err := build(t, chart, values); err == nil || !strings.Contains(err.Error(), section+" is null: leave it out") {
				t.Errorf("%s: %v", values, err)
			}
		}
	}
	if _, err := installer.Objects("capstan-hub", nil); err == nil {
		t.Error("a standalone hub has an operator")
	}
}
