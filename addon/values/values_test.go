package values_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/addon"
	"github.com/capstan-io/capstan/addon/addontest"
	"github.com/capstan-io/capstan/addon/config"
	"github.com/capstan-io/capstan/addon/values"
	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
)

// hub has configurations, given as YAML.
func hub(configurations ...string) client.Client {
	var objects []client.Object
	for _, text := range configurations {
		objects = append(objects, addontest.Object(text))
	}
	return addontest.Client(objects...)
}

func desired(text string) addonv1beta1.ConfigReference {
	return addontest.Reference(addontest.Object(text))
}

// installed is the add-on hello on cluster1.
func installed(references ...addonv1beta1.ConfigReference) addon.Installation {
	installation := addontest.Installation("cluster1", "hello")
	installation.AddOn.Status.ConfigReferences = references
	return installation
}

// AF-20
func TestMerge(t *testing.T) {
	t.Parallel()
	type v = values.Values
	base := v{"a": 1, "list": []any{1, 2}, "global": v{"x": 1, "y": v{"z": 1}}, "gone": v{"a": 1}}
	override := v{"b": 2, "list": []any{3}, "global": v{"y": v{"w": 2}, "x": 3}, "gone": nil, "new": v{"in": 1}}
	want := v{"a": 1, "b": 2, "list": []any{3}, "global": v{"x": 3, "y": v{"z": 1, "w": 2}}, "gone": nil, "new": v{"in": 1}}
	got := values.Merge(base, override)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	got["new"].(v)["in"] = 2
	got["global"].(v)["y"].(v)["z"] = 2
	if base["global"].(v)["y"].(v)["z"] != 1 || override["new"].(v)["in"] != 1 {
		t.Errorf("the arguments have changed: %v, %v", base, override)
	}
	if got := values.Merge(nil, nil); got == nil {
		t.Error("nothing and nothing are nil")
	}
}

// AF-20
func TestFromAnnotation(t *testing.T) {
	t.Parallel()
	with := func(text string) addon.Installation {
		i := installed()
		i.AddOn.Annotations = map[string]string{"addon.open-cluster-management.io/values": text}
		return i
	}
	got, err := values.FromAnnotation(t.Context(), with(`{"global":{"replicas":2}}`))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(values.Values{"global": values.Values{"replicas": 2.0}}, got); diff != "" {
		t.Error(diff)
	}
	for _, without := range []addon.Installation{with(""), installed()} {
		if got, err := values.FromAnnotation(t.Context(), without); got != nil || err != nil {
			t.Errorf("%v, %v without the annotation", got, err)
		}
	}
	if _, err := values.FromAnnotation(t.Context(), with(`replicas: 2`)); err == nil ||
		!strings.Contains(err.Error(), "ManagedClusterAddOn cluster1/hello is no JSON object") {
		t.Error(err)
	}
}

const full = `
apiVersion: addon.open-cluster-management.io/v1beta1
kind: AddOnDeploymentConfig
metadata: {name: full, namespace: default}
spec:
  agentInstallNamespace: ""
  customizedVariables: [{name: LogLevel, value: "4"}]
  nodePlacement:
    nodeSelector: {host: ssd}
    tolerations: [{key: dedicated, operator: Exists}]
  registries: [{source: quay.io/acme, mirror: mirror.example.com/acme}]
  proxyConfig: {httpProxy: "http://proxy:3128", noProxy: .svc, caBundle: QUJD}
  resourceRequirements:
  - containerID: "deployments:*:agent"
    resources: {limits: {memory: 64Mi}}
`

// AF-20: where each part of an AddOnDeploymentConfig is found.
func TestFromDeploymentConfig(t *testing.T) {
	t.Parallel()
	c := hub(full)
	installation := installed(desired(full))
	type v = values.Values
	for _, test := range []struct {
		name string
		part values.Part
		want v
	}{
		{"variables", values.Variables, v{"LogLevel": "4"}},
		{"node placement", values.NodePlacement,
			v{"global": v{"nodeSelector": v{"host": "ssd"}, "tolerations": []any{v{"key": "dedicated", "operator": "Exists"}}}}},
		{"proxy", values.Proxy, v{"global": v{"proxyConfig": v{"httpProxy": "http://proxy:3128", "noProxy": ".svc", "caBundle": "QUJD"}}}},
		{"resources", values.ResourceRequirements,
			v{"global": v{"resourceRequirements": []any{v{"containerIDRegex": "^(?:deployments:.+:agent)$",
				"resources": v{"limits": v{"memory": "64Mi"}}}}}}},
		{"image", values.Image("global.imageOverrides.agent", "quay.io/acme/agent:v1"),
			v{"global": v{"imageOverrides": v{"agent": "mirror.example.com/acme/agent:v1"}}}},
		{"another image", values.Image("image", "ghcr.io/acme/agent:v1"), v{}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			got, err := values.FromDeploymentConfig(c, test.part)(t.Context(), installation)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
	got, err := values.FromDeploymentConfig(c, values.Plain)(t.Context(), installation)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]any{"4", map[string]string{"host": "ssd"}}, []any{got["LogLevel"], got["NodeSelector"]}); diff != "" ||
		got["Tolerations"] == nil {
		t.Errorf("%s, tolerations %v", diff, got["Tolerations"])
	}
	resources := values.PlainResources{ContainerIDRegex: "^(?:deployments:.+:agent)$"}
	resources.Resources.Limits, resources.Resources.Requests = map[string]string{"memory": "64Mi"}, map[string]string{}
	want := []any{"http://proxy:3128", nil, ".svc", "ABC", []values.PlainResources{resources}}
	plain := []any{got["HTTPProxy"], got["HTTPSProxy"], got["NoProxy"], got["ProxyCABundle"], got["ResourceRequirements"]}
	if diff := cmp.Diff(want, plain); diff != "" {
		t.Error(diff)
	}
}

// Without parts of it, there are no values that would override others by nothing.
func TestEmptyDeploymentConfig(t *testing.T) {
	t.Parallel()
	for _, part := range []values.Part{values.Variables, values.Plain, values.NodePlacement, values.Proxy, values.ResourceRequirements} {
		if got, err := part(&addonv1beta1.AddOnDeploymentConfig{}); err != nil || len(got) != 0 {
			t.Errorf("%v, %v", got, err)
		}
	}
	wrong := &addonv1beta1.AddOnDeploymentConfig{Spec: addonv1beta1.AddOnDeploymentConfigSpec{
		ResourceRequirements: []addonv1beta1.ContainerResourceRequirements{{ContainerID: "deployments:("}}}}
	if _, err := values.ResourceRequirements(wrong); err == nil ||
		!strings.Contains(err.Error(), `containerID "deployments:(" is not of the form`) {
		t.Error(err)
	}
}

// AF-20, AM-37: the registries of the configuration come before those of the cluster.
func TestAgentImage(t *testing.T) {
	t.Parallel()
	c := hub(full)
	image := func(image string, references ...addonv1beta1.ConfigReference) any {
		installation := installed(references...)
		installation.Cluster.ObjectMeta = metav1.ObjectMeta{Name: "cluster1", Annotations: map[string]string{
			"open-cluster-management.io/image-registries": `{"registries":[{"source":"quay.io","mirror":"cluster.example.com"}]}`}}
		got, err := values.AgentImage(c, "image", image)(t.Context(), installation)
		if err != nil {
			t.Fatal(err)
		}
		return got["image"]
	}
	desired := desired(full)
	if got := image("quay.io/acme/agent:v1", desired); got != "mirror.example.com/acme/agent:v1" {
		t.Errorf("in both: %v", got)
	}
	if got := image("quay.io/other/agent:v1", desired); got != "cluster.example.com/other/agent:v1" {
		t.Errorf("of the cluster: %v", got)
	}
	if got := image("ghcr.io/acme/agent:v1", desired); got != "ghcr.io/acme/agent:v1" {
		t.Errorf("in none: %v", got)
	}
	if got := image("quay.io/acme/agent:v1"); got != "cluster.example.com/acme/agent:v1" {
		t.Errorf("without configuration: %v", got)
	}
}

// AM-07: nothing is made of a configuration that has not reached the cluster, or that there is not.
func TestFromDeploymentConfigFails(t *testing.T) {
	t.Parallel()
	c := hub(full)
	source := values.FromDeploymentConfig(c, values.Variables)
	behind := desired(full)
	behind.DesiredConfig.SpecHash = "another"
	if _, err := values.Collect(t.Context(), installed(behind), values.FromAnnotation, source); !errors.Is(err, addon.ErrNotYet) {
		t.Errorf("in another state: %v", err)
	}
	missing := desired(full)
	missing.DesiredConfig.Name = "missing"
	if _, err := values.Collect(t.Context(), installed(missing), source); !errors.Is(err, config.ErrMissing) {
		t.Errorf("missing: %v", err)
	}
	if got, err := values.Collect(t.Context(), installed(), source); err != nil || len(got) != 0 {
		t.Errorf("without configuration: %v, %v", got, err)
	}
}

// AF-20: of several configurations, the later ones override those before.
func TestSeveralDeploymentConfigs(t *testing.T) {
	t.Parallel()
	const second = `{apiVersion: addon.open-cluster-management.io/v1beta1, kind: AddOnDeploymentConfig, metadata: {name: second, namespace: default},
		spec: {agentInstallNamespace: "", customizedVariables: [{name: LogLevel, value: "6"}]}}`
	c := hub(full, second)
	first, last := desired(full), desired(second)
	for want, references := range map[string][]addonv1beta1.ConfigReference{"6": {first, last}, "4": {last, first}} {
		got, err := values.FromDeploymentConfig(c, values.Variables)(t.Context(), installed(references...))
		if err != nil || got["LogLevel"] != want {
			t.Errorf("LogLevel %v, error %v, want %s", got["LogLevel"], err, want)
		}
	}
}

// Whatever an annotation has, values that are read from it are the same when they are written into one.
func FuzzFromAnnotation(f *testing.F) {
	f.Add(`{"replicas":2,"global":{"images":["a","b"],"on":true,"none":null}}`)
	f.Add(`null`)
	f.Fuzz(func(t *testing.T, text string) {
		installation := installed()
		read := func(text string) (values.Values, error) {
			installation.AddOn.Annotations = map[string]string{values.Annotation: text}
			return values.FromAnnotation(t.Context(), installation)
		}
		found, err := read(text)
		if err != nil {
			return
		}
		written, err := json.Marshal(found)
		if err != nil {
			t.Fatalf("%q yields what is no JSON: %v", text, err)
		}
		again, err := read(string(written))
		if diff := cmp.Diff(found, again); err != nil || diff != "" {
			t.Errorf("%q is read again as %s: %v", text, diff, err)
		}
	})
}
