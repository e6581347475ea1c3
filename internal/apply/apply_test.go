package apply

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/capstan-io/capstan/internal/machinery/repair"
)

// CM-23: what is applied to a version of an object does not overwrite what a user has made of it since.
func TestApplyToVersion(t *testing.T) {
	t.Parallel()
	ctx, key := t.Context(), client.ObjectKey{Namespace: "hub", Name: "serving-cert"}
	c := &Cluster{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), applied: map[reference]state{},
		Options: Options{Label: "installation", FieldManager: "operator", Scheme: scheme.Scheme}}
	secret := func(content, version string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name, ResourceVersion: version},
			StringData: map[string]string{"content": content}}
	}
	first := secret("ours", "")
	if err := c.Apply(ctx, "one", first); err != nil {
		t.Fatal(err)
	}
	again := secret("ours again", first.ResourceVersion)
	if err := c.Apply(ctx, "one", again); err != nil || again.ResourceVersion == first.ResourceVersion {
		t.Fatalf("to the version that is there: %v, now %s", err, again.ResourceVersion)
	}
	ofUser := storeAsUser(ctx, t, c.Client, key)
	if err := c.Apply(ctx, "one", secret("ours, late", again.ResourceVersion)); !apierrors.IsConflict(err) {
		t.Errorf("to a version from before: %v", err)
	}
	if live := read(ctx, t, c.Client, key); live.ResourceVersion != ofUser.ResourceVersion || live.Labels["installation"] != "" {
		t.Errorf("it is %+v", live)
	}
	if err := c.Apply(ctx, "one", secret("ours, whatever is there", "")); err != nil {
		t.Error(err)
	}
}

// emptyCache is one that knows no object.
type emptyCache struct{ cache.Cache }

func (emptyCache) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("not known")
}

// What others keep changing is not applied without end.
func TestApplyAgain(t *testing.T) {
	t.Parallel()
	ctx, key := t.Context(), client.ObjectKey{Namespace: "hub", Name: "serving-cert"}
	clk := clocktesting.NewFakePassiveClock(time.Unix(1000, 0))
	c := &Cluster{Client: fake.NewClientBuilder().WithScheme(scheme.Scheme).Build(), applied: map[reference]state{},
		backoff: repair.NewBackoff(clk, repair.AtOnceByControllers), cache: emptyCache{},
		Options: Options{Label: "installation", FieldManager: "operator", Scheme: scheme.Scheme}}
	apply := func() error {
		return c.Apply(ctx, "one", &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name},
			Data: map[string][]byte{"content": []byte("ours")}})
	}
	if err := apply(); err != nil {
		t.Fatal(err)
	}
	for i := range repair.AtOnceByControllers {
		storeAsUser(ctx, t, c.Client, key)
		if err := apply(); err != nil {
			t.Fatalf("repair %d: %v", i, err)
		}
	}
	ofUser := storeAsUser(ctx, t, c.Client, key)
	backoff := new(repair.BackoffError)
	if err := apply(); !errors.As(err, &backoff) {
		t.Fatalf("got %v", err)
	}
	if live := read(ctx, t, c.Client, key); live.ResourceVersion != ofUser.ResourceVersion {
		t.Error("it was applied all the same")
	}
	clk.SetTime(backoff.Until)
	if err := apply(); err != nil || string(read(ctx, t, c.Client, key).Data["content"]) != "ours" {
		t.Errorf("when it is due: %v", err)
	}
}

// KL-23: a definition that the last installation leaves, and the next one has again, is no dispute, however often that is.
func TestApplyReleasedCRD(t *testing.T) {
	t.Parallel()
	crdScheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(crdScheme); err != nil {
		t.Fatal(err)
	}
	c := &Cluster{Client: fake.NewClientBuilder().WithScheme(crdScheme).Build(), applied: map[reference]state{},
		backoff: repair.NewBackoff(clocktesting.NewFakePassiveClock(time.Unix(1000, 0)), repair.AtOnceByControllers), cache: emptyCache{},
		Options: Options{Label: "installation", FieldManager: "operator", Scheme: crdScheme}}
	for i := range repair.AtOnceByControllers + 2 {
		crd := definition()
		if err := c.Apply(t.Context(), "one", crd); err != nil {
			t.Fatalf("installation %d: %v", i, err)
		}
		live := readCRD(t, c.Client, crd.Name)
		if live.Labels["installation"] != "one" {
			t.Fatalf("installation %d: the labels are %v", i, live.Labels)
		}
		if err := c.ReleaseCRD(t.Context(), live); err != nil {
			t.Fatal(err)
		}
		if labels := readCRD(t, c.Client, crd.Name).Labels; labels["installation"] != "" {
			t.Fatalf("installation %d leaves the labels %v", i, labels)
		}
	}
}

func read(ctx context.Context, t *testing.T, c client.Client, key client.ObjectKey) *corev1.Secret {
	t.Helper()
	live := &corev1.Secret{}
	if err := c.Get(ctx, key, live); err != nil {
		t.Fatal(err)
	}
	return live
}

func storeAsUser(ctx context.Context, t *testing.T, c client.Client, key client.ObjectKey) *corev1.Secret {
	t.Helper()
	live := read(ctx, t, c, key)
	live.Labels, live.Data = nil, map[string][]byte{"content": []byte("of a user")}
	if err := c.Update(ctx, live); err != nil {
		t.Fatal(err)
	}
	return live
}

// CM-20: what controllers write into the status while an object is applied is no repair.
func TestIsSameSpec(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*unstructured.Unstructured)
		want   bool
	}{
		"the status":                    {func(o *unstructured.Unstructured) { o.Object["status"] = map[string]any{"replicas": int64(1)} }, true},
		"the spec":                      {func(o *unstructured.Unstructured) { o.SetGeneration(2) }, false},
		"a label":                       {func(o *unstructured.Unstructured) { o.SetLabels(map[string]string{"a": "b"}) }, false},
		"an annotation":                 {func(o *unstructured.Unstructured) { o.SetAnnotations(map[string]string{"a": "b"}) }, false},
		"a finalizer":                   {func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"a/b"}) }, false},
		"an owner":                      {func(o *unstructured.Unstructured) { o.SetOwnerReferences([]metav1.OwnerReference{{Name: "a"}}) }, false},
		"the object":                    {func(o *unstructured.Unstructured) { o.SetUID("2") }, false},
		"of a kind without generations": {func(o *unstructured.Unstructured) { o.SetGeneration(0) }, false},
	} {
		before := &unstructured.Unstructured{Object: map[string]any{}}
		before.SetGeneration(1)
		before.SetUID("1")
		after := before.DeepCopy()
		test.change(after)
		if got := isSameSpec(before, after); got != test.want {
			t.Errorf("%s: %t, want %t", name, got, test.want)
		}
	}
}
