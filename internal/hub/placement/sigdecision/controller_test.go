package sigdecision

import (
	"context"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	inventory "sigs.k8s.io/cluster-inventory-api/apis/v1alpha1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	multiclusterv1alpha1 "github.com/capstan-io/capstan/api/multicluster/v1alpha1"
	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

func setUp(t *testing.T, objects ...client.Object) (client.Client, func()) {
	t.Helper()
	return setUpWith(t, interceptor.Funcs{}, objects...)
}

func setUpWith(t *testing.T, intercept interceptor.Funcs, objects ...client.Object) (client.Client, func()) {
	t.Helper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clusterv1beta1.AddToScheme, multiclusterv1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			t.Fatal(err)
		}
	}
	c := fake.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(intercept).Build()
	return c, func() {
		t.Helper()
		request := ctrl.Request{NamespacedName: client.ObjectKey{Namespace: "ns", Name: "web-decision-2"}}
		if _, err := New(c).Reconcile(t.Context(), request); err != nil {
			t.Fatal(err)
		}
	}
}

func decided(clusters ...string) *clusterv1beta1.PlacementDecision {
	d := &clusterv1beta1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-decision-2", UID: "uid",
		Labels: map[string]string{fleet.LabelPlacement: "web"}}}
	for _, cluster := range clusters {
		d.Status.Decisions = append(d.Status.Decisions, clusterv1beta1.ClusterDecision{ClusterName: cluster, Reason: "why"})
	}
	return d
}

func shown() *multiclusterv1alpha1.PlacementDecision {
	return &multiclusterv1alpha1.PlacementDecision{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-decision-2"}}
}

// NX-04: a decision is shown with its labels, follows the one of the hub, and goes with it.
func TestDecisionIsShown(t *testing.T) {
	t.Parallel()
	of := decided("paris", "rome")
	c, reconcile := setUp(t, of)
	reconcile()
	got := shown()
	read := func() {
		t.Helper()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil {
			t.Fatal(err)
		}
	}
	read()
	want := map[string]string{"multicluster.x-k8s.io/decision-key": "web", "multicluster.x-k8s.io/placement-key": "web",
		"multicluster.x-k8s.io/decision-index": "1"}
	if !maps.Equal(got.Labels, want) || got.SchedulerName != "open-cluster-management" {
		t.Errorf("labels %v, want %v, by %s", got.Labels, want, got.SchedulerName)
	}
	profile := multiclusterv1alpha1.ClusterProfileReference{Namespace: "ns", Name: "rome"}
	if len(got.Decisions) != 2 || got.Decisions[1].ClusterProfileRef != profile || got.Decisions[1].Reason != "why" {
		t.Errorf("decisions %+v", got.Decisions)
	}
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(of), of); err != nil {
		t.Fatal(err)
	}
	of.Status.Decisions = of.Status.Decisions[1:]
	if err := c.Update(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if read(); len(got.Decisions) != 1 || got.Decisions[0].ClusterProfileRef.Name != "rome" {
		t.Errorf("decisions %+v", got.Decisions)
	}
	if err := c.Delete(t.Context(), of); err != nil {
		t.Fatal(err)
	}
	reconcile()
	if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); !apierrors.IsNotFound(err) {
		t.Errorf("it stays: %v", err)
	}
}

// NX-04: a decision that has not changed is written once, also where the CRD of the SIG keeps only what its type has.
func TestUnchangedDecisionIsNotWritten(t *testing.T) {
	t.Parallel()
	writes := 0
	_, reconcile := setUpWith(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			err := c.Get(ctx, key, o, options...)
			if read, ok := o.(*multiclusterv1alpha1.PlacementDecision); ok && err == nil {
				err = prune(read)
			}
			return err
		},
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			writes++
			return c.Create(ctx, o, options...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, options ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, o, p, options...)
		},
	}, decided("paris", "rome"))
	for range 3 {
		reconcile()
	}
	if writes != 1 {
		t.Errorf("it is written %d times", writes)
	}
}

// prune leaves of a decision what the type of the SIG has.
func prune(decision *multiclusterv1alpha1.PlacementDecision) error {
	content, err := json.Marshal(decision)
	if err != nil {
		return err
	}
	kept := &inventory.PlacementDecision{}
	if err := json.Unmarshal(content, kept); err != nil {
		return err
	}
	if content, err = json.Marshal(kept); err != nil {
		return err
	}
	*decision = multiclusterv1alpha1.PlacementDecision{}
	return json.Unmarshal(content, decision)
}

// NX-04: our CRD allows what that of the SIG allows.
func TestSchema(t *testing.T) {
	t.Parallel()
	const name = "placementdecisions.multicluster.x-k8s.io"
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/cluster-inventory-api").Output()
	if err != nil {
		t.Fatalf("find the module of the SIG: %v", err)
	}
	file := filepath.Join(strings.TrimSpace(string(out)), "config", "crd", "bases", "multicluster.x-k8s.io_placementdecisions.yaml")
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	theirs := &apiextensionsv1.CustomResourceDefinition{}
	if err := yaml.UnmarshalStrict(content, theirs); err != nil {
		t.Fatal(err)
	}
	all := crds.Hub()
	i := slices.IndexFunc(all, func(crd *apiextensionsv1.CustomResourceDefinition) bool { return crd.Name == name })
	if i < 0 {
		t.Fatalf("there is no %s", name)
	}
	ours := all[i]
	for _, crd := range []*apiextensionsv1.CustomResourceDefinition{ours, theirs} {
		for v := range crd.Spec.Versions {
			withoutWords(crd.Spec.Versions[v].Schema.OpenAPIV3Schema)
		}
	}
	if diff := cmp.Diff(theirs.Spec, ours.Spec); diff != "" {
		t.Errorf("our CRD differs:\n%s", diff)
	}
}

// withoutWords takes off a schema what changes nothing about what is valid.
func withoutWords(schema *apiextensionsv1.JSONSchemaProps) {
	schema.Description = ""
	if schema.MinItems != nil && *schema.MinItems == 0 {
		schema.MinItems = nil
	}
	if schema.Items != nil {
		withoutWords(schema.Items.Schema)
	}
	for name, property := range schema.Properties {
		withoutWords(&property)
		schema.Properties[name] = property
	}
}

// NX-04: decisions of other schedulers are left alone, also under the same name.
func TestDecisionsOfOthers(t *testing.T) {
	t.Parallel()
	other := shown()
	other.SchedulerName = "other"
	for name, objects := range map[string][]client.Object{"beside one": {other.DeepCopy(), decided("paris")}, "alone": {other.DeepCopy()}} {
		c, reconcile := setUp(t, objects...)
		reconcile()
		got := shown()
		if err := c.Get(t.Context(), client.ObjectKeyFromObject(got), got); err != nil || got.SchedulerName != "other" || len(got.Decisions) > 0 {
			t.Errorf("%s: %+v: %v", name, got, err)
		}
	}
}
