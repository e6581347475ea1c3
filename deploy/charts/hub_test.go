package charts

import (
	"os"
	"path/filepath"
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
