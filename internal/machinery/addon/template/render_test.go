package template_test

import (
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	addonv1beta1 "github.com/capstan-io/capstan/api/addon/v1beta1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/addon/template"
)

var update = flag.Bool("update", false, "write the golden files again")

// AM-31, AM-32, AM-33, AM-37, gap A3, and the proxy settings of the documentation.
func TestRenderGolden(t *testing.T) {
	t.Parallel()
	cases, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		if c.Name() == "fuzz" {
			continue
		}
		t.Run(c.Name(), func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join("testdata", c.Name())
			in := inputOf(t, dir)
			before := inputOf(t, dir)
			rendered, err := template.Render(in)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(before, in); diff != "" {
				t.Errorf("the input has changed: %s", diff)
			}
			golden := filepath.Join(dir, "rendered.yaml")
			got := write(t, in, rendered)
			if *update {
				if err := os.WriteFile(golden, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("rendered differently (-want +got; go test -update writes it again):\n%s", diff)
			}
		})
	}
}

func inputOf(t *testing.T, dir string) template.Input {
	t.Helper()
	in := template.Input{
		AddOn: "hello", Cluster: "cluster1", Template: &addonv1beta1.AddOnTemplateSpec{},
		ClusterMirrors: []addonv1beta1.ImageMirror{{Source: "ghcr.io", Mirror: "cluster-mirror.example.com"},
			{Source: "quay.io/acme", Mirror: "not-this.example.com"}},
	}
	if strings.HasSuffix(dir, "plain") {
		in.ClusterMirrors = nil
	}
	read(t, filepath.Join(dir, "template.yaml"), in.Template)
	in.AddOn = in.Template.AddonName
	var config addonv1beta1.AddOnDeploymentConfig
	if _, err := os.Stat(filepath.Join(dir, "config.yaml")); !errors.Is(err, fs.ErrNotExist) {
		read(t, filepath.Join(dir, "config.yaml"), &config)
		in.Config = &config.Spec
	}
	in.Namespace = template.Namespace(in)
	return in
}

func read(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, into); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

func write(t *testing.T, in template.Input, rendered *template.Rendered) []byte {
	t.Helper()
	text, err := yaml.Marshal(map[string]any{
		"namespace": in.Namespace, "unknown": rendered.Unknown, "objects": rendered.Objects,
		"manifestConfigs": rendered.ManifestConfigs, "deleteOption": rendered.DeleteOption, "executor": rendered.Executor,
	})
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func manifests(t testing.TB, texts ...string) workv1.ManifestWorkSpec {
	t.Helper()
	var spec workv1.ManifestWorkSpec
	for _, text := range texts {
		raw := []byte(text)
		if !json.Valid(raw) {
			var err error
			if raw, err = yaml.YAMLToJSON(raw); err != nil {
				t.Fatal(err)
			}
		}
		var m workv1.Manifest
		m.Raw = raw
		spec.Workload.Manifests = append(spec.Workload.Manifests, m)
	}
	return spec
}

// Errors name what is wrong and where.
func TestRenderErrors(t *testing.T) {
	t.Parallel()
	const deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: ns}, spec: {template: {spec: {containers: [{name: c}]}}}}`
	for _, test := range []struct {
		name, want string
		manifests  []string
		config     *addonv1beta1.AddOnDeploymentConfigSpec
	}{
		{name: "no object", manifests: []string{`{metadata: {name: a}}`},
			want: `spec.agentSpec.workload: manifest 0 ("a"): apiVersion is missing`},
		{name: "no name without the variable", manifests: []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: "{{NOBODY}}"}}`},
			want: "metadata.name is missing"},
		{name: "two keys become one",
			manifests: []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {"{{A}}": x, "{{B}}": "y"}}`},
			want:      `spec.agentSpec.workload.manifests[0].data: with their variables, the keys "{{A}}" and "{{B}}" are both ""`},
		{name: "no pods", manifests: []string{`{apiVersion: apps/v1, kind: Deployment, metadata: {name: d}}`},
			want: "Deployment d: spec.template.spec is missing or no object"},
		{name: "containers are no list",
			manifests: []string{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {containers: {name: c}}}}}`},
			want:      "DaemonSet d: containers is a map[string]interface {}, not a list"},
		{name: "a container is no object",
			manifests: []string{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {containers: [c]}}}}`},
			want:      "DaemonSet d: containers[0] is a string, not an object"},
		{name: "environment is no list",
			manifests: []string{`{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d}, spec: {template: {spec: {containers: [{name: c, env: x}]}}}}`},
			want:      `DaemonSet d: container "c": env is a string, not a list`},
		{name: "no pattern", manifests: []string{deployment},
			want: `spec.resourceRequirements[1] of the AddOnDeploymentConfig: containerID "deployments:(:c" is not of the form deployments:NAME:CONTAINER`,
			config: &addonv1beta1.AddOnDeploymentConfigSpec{ResourceRequirements: []addonv1beta1.ContainerResourceRequirements{
				{ContainerID: "*:*:*"}, {ContainerID: "deployments:(:c"}}}},
		{name: "variables of any size", manifests: []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: "` +
			strings.Repeat("{{A}}", 2000) + `"}}`},
			config: &addonv1beta1.AddOnDeploymentConfigSpec{CustomizedVariables: []addonv1beta1.CustomizedVariable{{Name: "A",
				Value: strings.Repeat("a", 1024)}}},
			want: "spec.agentSpec: with the values of its variables, the template has too many bytes; the limit is 1048576"},
		{name: "tolerations of any size", manifests: slices.Repeat([]string{deployment}, 20),
			config: &addonv1beta1.AddOnDeploymentConfigSpec{
				NodePlacement: &addonv1beta1.NodePlacement{Tolerations: []corev1.Toleration{{Key: strings.Repeat("a", 100_000)}}}},
			want: "Deployment d: what the AddOnDeploymentConfig and the variables add to the pods of the template has too many bytes; the limit is 1048576"},
		{name: "resources of any number", manifests: []string{deployment},
			config: &addonv1beta1.AddOnDeploymentConfigSpec{
				ResourceRequirements: slices.Repeat([]addonv1beta1.ContainerResourceRequirements{{ContainerID: "*:*:x"}}, 501)},
			want: "spec.resourceRequirements of the AddOnDeploymentConfig: there are 501; the limit is 500"},
		{name: "a pattern that repeats", manifests: []string{deployment},
			config: &addonv1beta1.AddOnDeploymentConfigSpec{ResourceRequirements: []addonv1beta1.ContainerResourceRequirements{
				{ContainerID: "deployments:" + strings.Repeat("(x{0,900})", 50) + ":c"}}},
			want: "repeats too much: it has too many parts; the limit is 10000 parts"},
		{name: "two objects become one", manifests: []string{`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: x}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: z}}`},
			config: &addonv1beta1.AddOnDeploymentConfigSpec{AgentInstallNamespace: "ns"},
			want:   `v1 ConfigMap x/a and v1 ConfigMap z/a of the template would both be v1 ConfigMap ns/a: the AddOnDeploymentConfig moves all objects to the namespace ns`},
		{name: "subjects are no list",
			manifests: []string{`{apiVersion: rbac.authorization.k8s.io/v1, kind: RoleBinding, metadata: {name: a, namespace: x}, subjects: {}}`},
			config:    &addonv1beta1.AddOnDeploymentConfigSpec{AgentInstallNamespace: "ns"},
			want:      `rbac.authorization.k8s.io/v1 RoleBinding x/a: subjects is a map[string]interface {}, not a list`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			_, err := template.Render(template.Input{AddOn: "a", Cluster: "c", Namespace: "ns", Config: test.config,
				Template: &addonv1beta1.AddOnTemplateSpec{AgentSpec: manifests(t, test.manifests...)}})
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v, want %s", err, test.want)
			}
		})
	}
}

// AM-33
func TestNamespace(t *testing.T) {
	t.Parallel()
	const (
		deployment = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: d, namespace: of-deployment}}`
		second     = `{apiVersion: apps/v1, kind: Deployment, metadata: {name: e, namespace: of-second}}`
		daemonSet  = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: of-daemonset}}`
		left       = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: "{{INSTALL_NAMESPACE}}"}}`
		perCluster = `{apiVersion: apps/v1, kind: DaemonSet, metadata: {name: d, namespace: "hello-{{CLUSTER_NAME}}"}}`
		configMap  = `{apiVersion: v1, kind: ConfigMap, metadata: {name: d, namespace: of-configmap}}`
	)
	for _, test := range []struct {
		name, want, config string
		manifests          []string
	}{
		{name: "first Deployment", manifests: []string{configMap, daemonSet, deployment, second}, want: "of-deployment"},
		{name: "first DaemonSet", manifests: []string{configMap, daemonSet}, want: "of-daemonset"},
		{name: "default", manifests: []string{configMap}, want: "open-cluster-management-agent-addon"},
		{name: "left to us", manifests: []string{left}, want: "open-cluster-management-agent-addon"},
		{name: "one for each cluster", manifests: []string{perCluster}, want: "hello-c1"},
		{name: "configured", manifests: []string{deployment}, config: "configured", want: "configured"},
		{name: "not usable", manifests: []string{`{kind: Deployment, metadata: {namespace: ns}}`}, want: "open-cluster-management-agent-addon"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			in := template.Input{AddOn: "a", Cluster: "c1", Template: &addonv1beta1.AddOnTemplateSpec{AgentSpec: manifests(t, test.manifests...)},
				Config: &addonv1beta1.AddOnDeploymentConfigSpec{AgentInstallNamespace: test.config}}
			if got := template.Namespace(in); got != test.want {
				t.Errorf("the namespace is %q, want %q", got, test.want)
			}
		})
	}
}

// A value changes the string it is in, whatever it holds, and nothing else: the original let it change the manifest.
func FuzzVariables(f *testing.F) {
	f.Add("NAME", `value`, `text {{NAME}} {{OTHER}}`)
	f.Add("NAME", `","injected":"x`, `{{NAME}}`)
	f.Add("NAME", "line\nbreak \\ \u2028 {{NAME}} {{CLUSTER_NAME}}", `a{{ NAME }}b{{NAME}}`)
	f.Add("CLUSTER_NAME", "x", `{{CLUSTER_NAME}}{{{{CLUSTER_NAME}}}}`)
	f.Fuzz(func(t *testing.T, name, value, text string) {
		data, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		manifest := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"other":"x","text":` + string(data) +
			`},"list":[1,true,null,` + string(data) + `,0.5]}`
		rendered, err := template.Render(template.Input{
			AddOn: "a", Cluster: "c1", Namespace: "ns",
			Config:   &addonv1beta1.AddOnDeploymentConfigSpec{CustomizedVariables: []addonv1beta1.CustomizedVariable{{Name: name, Value: value}}},
			Template: &addonv1beta1.AddOnTemplateSpec{AgentSpec: manifests(t, manifest)},
		})
		if err != nil {
			t.Fatalf("%q with %q=%q: %v", text, name, value, err)
		}
		object := rendered.Objects[0].Object
		got, _ := object["data"].(map[string]any)["text"].(string)
		delete(object["data"].(map[string]any), "text")
		list := object["list"].([]any)
		if list[3] != got {
			t.Errorf("the same text became %q and %q", got, list[3])
		}
		list[3] = ""
		want := map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"},
			"data": map[string]any{"other": "x"},
			"list": []any{int64(1), true, nil, "", 0.5}}
		if diff := cmp.Diff(want, object); diff != "" {
			t.Errorf("%q with %q=%q changed the structure: %s", text, name, value, diff)
		}
		if text == "{{"+name+"}}" && name == "NAME" && got != strings.ToValidUTF8(value, "\ufffd") {
			t.Errorf("%q became %q", value, got)
		}
	})
}
