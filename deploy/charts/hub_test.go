package charts

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/capstan-io/capstan/internal/controlplane/ocmconfig"
)

// SC-24 SC-25: a hub in a cluster accepts every configuration that the chart writes, and finds all files in it.
func TestHubConfiguration(t *testing.T) {
	t.Parallel()
	for _, e := range effects(t, "capstan-hub") {
		objects := install("capstan-hub", show(e.Values)).objects(t)
		secret := get[corev1.Secret](t, objects, "Secret/multicluster-controlplane/controlplane-config")
		deployment := get[appsv1.Deployment](t, objects, "Deployment/multicluster-controlplane/multicluster-controlplane")
		pod := deployment.Spec.Template.Spec
		mounted := pod.Containers[0].VolumeMounts[0]
		if pod.Volumes[0].Secret.SecretName != secret.Name || mounted.Name != pod.Volumes[0].Name {
			t.Fatalf("%s is not mounted: %+v", secret.Name, pod)
		}
		dir := t.TempDir()
		for name, content := range secret.Data {
			content := strings.ReplaceAll(string(content), mounted.MountPath, dir)
			if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		config, err := ocmconfig.Load(ocmconfig.Options{Dir: dir, Explicit: true, InCluster: true})
		if err != nil {
			t.Errorf("%s: %v", show(e.Values), err)
			continue
		}
		if data := pod.Containers[0].VolumeMounts[1].MountPath; config.DataDirectory != data {
			t.Errorf("the hub writes to %s, the volume is at %s", config.DataDirectory, data)
		}
	}
}

// SC-24: the CA that the chart has made stays where the storage does, which agents of the next release go on with.
func TestMadeCAStays(t *testing.T) {
	t.Parallel()
	const ours = "apiserver: {ca: CERT, cakey: KEY, generateCA: true}"
	for values, want := range map[string]string{
		"apiserver: {generateCA: true}":                                              "keep",
		"{apiserver: {generateCA: true}, storage: {type: hostPath, hostPath: /hub}}": "keep",
		"{apiserver: {generateCA: true}, pvc: {keep: false}}":                        "",
		ours: "",
		"":   "",
	} {
		secret := get[corev1.Secret](t, install("capstan-hub", values).objects(t), "Secret/multicluster-controlplane/controlplane-config")
		if got := secret.Annotations["helm.sh/resource-policy"]; got != want {
			t.Errorf("%q: the policy is %q, want %q", values, got, want)
		}
	}
}

// SC-24: the alerts for hubs select the job that the ServiceMonitor names.
func TestAlertsSelectJobOfServiceMonitor(t *testing.T) {
	t.Parallel()
	rules, err := os.ReadFile("../alerts/capstan.yaml")
	if err != nil {
		t.Fatal(err)
	}
	objects := install("capstan-hub", "metrics: {serviceMonitor: {enabled: true}}").objects(t)
	relabeling := at(objects, "ServiceMonitor/multicluster-controlplane/multicluster-controlplane", "/spec/endpoints/0/relabelings/0")
	if label := follow(relabeling, []string{"targetLabel"}); label != "job" {
		t.Fatalf("the relabeling of the endpoint is %s", show(relabeling))
	}
	named := follow(relabeling, []string{"replacement"})
	for _, job := range regexp.MustCompile(`job="([^"]*)"`).FindAllStringSubmatch(string(rules), -1) {
		if job[1] != named && job[1] != "capstan-agent" {
			t.Errorf("alerts select the job %s, the ServiceMonitor names it %v", job[1], named)
		}
	}
}

// SC-24: who installs a hub is told what its storage loses, how to go on without a StorageClass, and how to reach a hub that is not
// exposed.
func TestHubNotes(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ values, has, hasNot string }{
		{"", "no default StorageClass", "WARNING"},
		{"", "A release of the same name goes on with them, one of another name\nwith `helm install --take-ownership`.", "WARNING"},
		{"storage: {type: emptyDir}", "WARNING: with storage.type emptyDir, the hub ends with its pod", "kubectl delete pvc"},
		{"{storage: {type: emptyDir}, etcd: {mode: external, servers: ['http://etcd:2379']}}", "hub.kubeconfig", "WARNING"},
		{"storage: {type: hostPath, hostPath: /hub}", "storage of the hub are in /hub of its node", "kubectl delete pvc"},
		{"", "kubectl port-forward service/multicluster-controlplane 8443:443", "WARNING"},
		{"loadbalancer: {enabled: true}", "hub.kubeconfig", "port-forward"},
	} {
		files, err := install("capstan-hub", test.values).files(t)
		if err != nil {
			t.Fatal(err)
		}
		notes := files["NOTES.txt"]
		if !strings.Contains(notes, test.has) || strings.Contains(notes, test.hasNot) {
			t.Errorf("%q: want %q and not %q in:\n%s", test.values, test.has, test.hasNot, notes)
		}
		if said := "removes the Secrets with the kubeconfigs of the administrator"; !strings.Contains(notes, said) {
			t.Errorf("%q: %q is missing in:\n%s", test.values, said, notes)
		}
	}
}

// SC-05 SC-24: the pod is replaced when the hub is to find out anew how agents reach it, as it does when it starts.
func TestHubFindsItsAddressAgain(t *testing.T) {
	t.Parallel()
	valuesOf := map[string]string{}
	for _, values := range []string{
		"", "apiserver: {externalHostname: hub.example.com}", "route: {enabled: true}", "loadbalancer: {enabled: true}",
		"loadbalancer: {enabled: true, ip: 192.0.2.1}",
	} {
		objects := install("capstan-hub", values).objects(t)
		deployment := get[appsv1.Deployment](t, objects, "Deployment/multicluster-controlplane/multicluster-controlplane")
		sum := deployment.Spec.Template.Annotations["checksum/config"]
		if other, same := valuesOf[sum]; same {
			t.Errorf("an upgrade from %q to %q does not replace the pod", other, values)
		}
		valuesOf[sum] = values
	}
}
