package charts

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// HC-08 HC-09 HC-10 HC-11: pods of add-ons, also of the examples, run where the cluster chooses their users, as OpenShift does, and have
// the seccomp profile that restricted namespaces want.
func TestPodsOfAddOns(t *testing.T) {
	t.Parallel()
	all := map[string]objects{
		"cluster-gateway-addon-manager": install("cluster-gateway-addon-manager", "manualSecretManagement: false").objects(t),
		"cluster-proxy":                 install("cluster-proxy", "").objects(t),
		"managed-serviceaccount":        install("managed-serviceaccount", "").objects(t),
		"resource-usage-collect-addon":  install("resource-usage-collect-addon", "").objects(t),
	}
	for _, file := range []string{"helloworld/controller.yaml", "helloworld-template/addontemplate.yaml",
		"resource-usage-collect/addontemplate.yaml"} {
		all["example "+file] = exampleObjects(t, file)
	}
	for name, objects := range all {
		pods := 0
		for _, object := range objects {
			for _, manifest := range manifestsOf(object) {
				if follow(manifest, []string{"kind"}) != "Deployment" {
					continue
				}
				pods++
				pod := follow(manifest, []string{"spec", "template", "spec"})
				if strings.Contains(show(pod), "runAsUser") {
					t.Errorf("%s chooses the user of its pods: %s", name, show(pod))
				}
				if profile := follow(pod, []string{"securityContext", "seccompProfile", "type"}); profile != "RuntimeDefault" {
					t.Errorf("%s has the seccomp profile %v", name, profile)
				}
			}
		}
		if pods == 0 {
			t.Errorf("%s has no pods", name)
		}
	}
}

// HC-11: agents of templates pull their images with what the operator of the cluster has for its registry.
func TestAgentsOfTemplatesPullImages(t *testing.T) {
	t.Parallel()
	secrets := []any{map[string]any{"name": fleet.SecretImagePullCredentials}}
	for name, objects := range map[string]objects{
		"resource-usage-collect-addon":   install("resource-usage-collect-addon", "").objects(t),
		"with a namespace of its own":    install("resource-usage-collect-addon", "addon: {namespace: agents}").objects(t),
		"example helloworld-template":    exampleObjects(t, "helloworld-template/addontemplate.yaml"),
		"example resource-usage-collect": exampleObjects(t, "resource-usage-collect/addontemplate.yaml"),
	} {
		accounts := 0
		for _, object := range objects {
			if object.GetKind() != "AddOnTemplate" {
				continue
			}
			for _, manifest := range manifestsOf(object) {
				switch follow(manifest, []string{"kind"}) {
				case "ServiceAccount":
					accounts++
					if got := follow(manifest, []string{"imagePullSecrets"}); !reflect.DeepEqual(got, any(secrets)) {
						t.Errorf("%s: the service account has %s", name, show(got))
					}
				case "Namespace":
					if label := follow(manifest, []string{"metadata", "labels", fleet.LabelAddOnAgentNamespace}); label != fleet.LabelTrue {
						t.Errorf("%s: the operator copies no Secret to %s", name, show(manifest))
					}
				}
			}
		}
		if accounts != 1 {
			t.Errorf("%s has %d service accounts", name, accounts)
		}
	}
}

func exampleObjects(t *testing.T, file string) objects {
	t.Helper()
	content, err := os.ReadFile("../examples/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return parse(t, file, string(content))
}

// manifestsOf are what an AddOnTemplate brings to clusters, and other objects themselves.
func manifestsOf(object unstructured.Unstructured) []any {
	if object.GetKind() != "AddOnTemplate" {
		return []any{object.Object}
	}
	manifests, _ := follow(object.Object, []string{"spec", "agentSpec", "workload", "manifests"}).([]any)
	return manifests
}
