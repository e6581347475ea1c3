package works

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/test/env"
	"github.com/capstan-io/capstan/test/integration/framework"
)

const argoNamespace = "argocd"

// AR-01: with the objects of the example, an ApplicationSet gets one Application for each cluster that the placement
// selects, and follows it.
func TestArgoCD(t *testing.T) {
	t.Parallel()
	own := env.StartHub(t, "")
	c := own.Client(t)
	framework.Namespace(t, c, argoNamespace)
	var applicationSet *unstructured.Unstructured
	for _, o := range readExample(t, "generator.yaml", "placement.yaml", "applicationset.yaml") {
		if o.GetKind() == "ApplicationSet" {
			applicationSet = o
			continue
		}
		framework.Create(t, c, o)
	}
	for _, name := range []string{"paris", "rome", "tokyo"} {
		region := map[bool]string{true: "asia", false: "eu"}[name == "tokyo"]
		framework.Create(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": region}}})
		framework.Create(t, c, argoCluster(name))
	}
	g := newGenerator(t, own, applicationSet)
	g.await(t, "web-paris to paris at https://paris", "web-rome to rome at https://rome")
	framework.MergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "rome"}},
		`{"spec":{"taints":[{"key":"maintenance","effect":"NoSelect"}]}}`)
	g.await(t, "web-paris to paris at https://paris")
	framework.MergePatch(t, c, &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: "tokyo"}},
		`{"metadata":{"labels":{"region":"eu"}}}`)
	g.await(t, "web-paris to paris at https://paris", "web-tokyo to tokyo at https://tokyo")
}

// readExample decodes the objects in files of the example.
func readExample(t *testing.T, files ...string) (objects []*unstructured.Unstructured) {
	t.Helper()
	for _, file := range files {
		content, err := os.ReadFile("../../../deploy/examples/argocd/" + file)
		if err != nil {
			t.Fatal(err)
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for {
			o := &unstructured.Unstructured{}
			err := decoder.Decode(&o.Object)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			objects = append(objects, o)
		}
	}
	return objects
}

// argoCluster is how Argo CD knows a cluster.
func argoCluster(name string) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: argoNamespace, Name: name,
			Labels: map[string]string{"argocd.argoproj.io/secret-type": "cluster"}},
		StringData: map[string]string{"name": name, "server": "https://" + name},
	}
}

// generator does what the generator clusterDecisionResource of Argo CD 2 does, with no more rights than the example gives.
type generator struct {
	argo      kubernetes.Interface // what Argo CD may read without the example
	decisions dynamic.Interface
	set       *unstructured.Unstructured
}

func newGenerator(t *testing.T, s *env.Server, set *unstructured.Unstructured) *generator {
	t.Helper()
	config, err := s.Config()
	if err != nil {
		t.Fatal(err)
	}
	argo, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	config = rest.CopyConfig(config)
	config.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:argocd:argocd-applicationset-controller"}
	decisions, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return &generator{argo, decisions, set}
}

func (g *generator) await(t *testing.T, want ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		got, err := g.applications(ctx)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("the applications are %q, want %q", got, want)
		}
		return err
	})
}

// applications are the names and the destinations that the template of the set makes of the parameters.
func (g *generator) applications(ctx context.Context) (applications []string, err error) {
	parameters, err := g.parameters(ctx)
	if err != nil {
		return nil, err
	}
	name, _, err := unstructured.NestedString(g.set.Object, "spec", "template", "metadata", "name")
	if err != nil {
		return nil, err
	}
	destination, _, err := unstructured.NestedString(g.set.Object, "spec", "template", "spec", "destination", "name")
	if err != nil {
		return nil, err
	}
	for _, p := range parameters {
		var pairs []string
		for key, value := range p {
			pairs = append(pairs, "{{"+key+"}}", value)
		}
		applications = append(applications, strings.NewReplacer(pairs...).Replace(name+" to "+destination+" at {{server}}"))
	}
	slices.Sort(applications)
	return applications, nil
}

// parameters reads the decisions as the ConfigMap tells, joins them with the clusters of Argo CD by name, and takes every
// field of a decision for text.
func (g *generator) parameters(ctx context.Context) (all []map[string]string, err error) {
	generators, _, err := unstructured.NestedSlice(g.set.Object, "spec", "generators")
	if err != nil {
		return nil, err
	}
	if len(generators) != 1 {
		return nil, fmt.Errorf("%d generators, want 1", len(generators))
	}
	spec, found, err := unstructured.NestedMap(generators[0].(map[string]any), "clusterDecisionResource")
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, fmt.Errorf("no clusterDecisionResource in %v", generators[0])
	}
	labels, _, err := unstructured.NestedStringMap(spec, "labelSelector", "matchLabels")
	if err != nil {
		return nil, err
	}
	config, err := g.argo.CoreV1().ConfigMaps(argoNamespace).Get(ctx, spec["configMapRef"].(string), metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	servers, err := g.servers(ctx)
	if err != nil {
		return nil, err
	}
	gv, err := schema.ParseGroupVersion(config.Data["apiVersion"])
	if err != nil {
		return nil, err
	}
	list, err := g.decisions.Resource(gv.WithResource(config.Data["kind"])).Namespace(argoNamespace).
		List(ctx, metav1.ListOptions{LabelSelector: metav1.FormatLabelSelector(&metav1.LabelSelector{MatchLabels: labels})})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, errors.New("no decisions, which Argo CD takes for an error")
	}
	for _, item := range list.Items {
		decisions, _, err := unstructured.NestedSlice(item.Object, "status", config.Data["statusListKey"])
		if err != nil {
			return nil, err
		}
		for _, d := range decisions {
			parameters := map[string]string{}
			for key, value := range d.(map[string]any) {
				text, ok := value.(string)
				if !ok {
					return nil, fmt.Errorf("%s is %v, a %T: Argo CD would fail", key, value, value)
				}
				parameters[key] = text
			}
			name := parameters[config.Data["matchKey"]]
			if server, known := servers[name]; known {
				parameters["name"], parameters["server"] = name, server
				all = append(all, parameters)
			}
		}
	}
	return all, nil
}

func (g *generator) servers(ctx context.Context) (map[string]string, error) {
	secrets, err := g.argo.CoreV1().Secrets(argoNamespace).List(ctx,
		metav1.ListOptions{LabelSelector: "argocd.argoproj.io/secret-type=cluster"})
	if err != nil {
		return nil, err
	}
	servers := map[string]string{}
	for _, s := range secrets.Items {
		servers[string(s.Data["name"])] = string(s.Data["server"])
	}
	return servers, nil
}
