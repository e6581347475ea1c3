package apply

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/capstan-io/capstan/deploy/crds"
	"github.com/capstan-io/capstan/internal/apply/crdversion"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/upgrade"
)

// clusterWith is a cluster with some objects.
func clusterWith(t *testing.T, funcs interceptor.Funcs, objects ...client.Object) client.WithWatch {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	return fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(definition()).WithObjects(objects...).
		WithInterceptorFuncs(funcs).Build()
}

func readCRD(t *testing.T, cluster client.Client, name string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	live := &apiextensionsv1.CustomResourceDefinition{}
	if err := cluster.Get(t.Context(), client.ObjectKey{Name: name}, live); err != nil {
		t.Fatal(err)
	}
	return live
}

// SC-18, SC-22: definitions are created, and written again only when they differ.
func TestInstallCRD(t *testing.T) {
	t.Parallel()
	var written []string
	cluster := clusterWith(t, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.CreateOption) error {
			written = append(written, o.GetName())
			return c.Create(ctx, o, options...)
		},
		Update: func(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.UpdateOption) error {
			return errors.New(o.GetName() + " is as it should be")
		},
	})
	all := slices.Concat(crds.Hub(), crds.ManagedCluster(), crds.ClusterProperties())
	for range 2 {
		for _, crd := range all {
			want := crd.DeepCopy()
			if err := InstallCRD(t.Context(), cluster, want, "v1.4.0"); err != nil {
				t.Fatal(err)
			}
			if want.ResourceVersion == "" {
				t.Errorf("%s is not what the cluster has", crd.Name)
			}
		}
	}
	if len(written) != len(all) {
		t.Errorf("%d writes of %d definitions: %v", len(written), len(all), written)
	}
}

// SC-22, CM-19: definitions that are older are brought up to date; those of a newer version, and those of a group of Kubernetes, stay as
// they are. That is the rule, so each reconcile does not log it.
func TestInstallOverOthers(t *testing.T) {
	t.Parallel()
	ours, ofKubernetes := crds.ManagedCluster()[0], crds.ClusterProperties()[0]
	for name, test := range map[string]struct {
		want    *apiextensionsv1.CustomResourceDefinition
		version string
		stays   bool
	}{
		"of nobody":     {want: ours},
		"older":         {want: ours, version: "1.0.0"},
		"of no version": {want: ours, version: "unknown"},
		"newer":         {want: ours, version: "99.0.0", stays: true},
		"of Kubernetes": {want: ofKubernetes, stays: true},
	} {
		have := test.want.DeepCopy()
		have.Annotations = map[string]string{fleet.AnnotationOperatorVersion: test.version}
		have.Spec.Versions[0].DeprecationWarning = ptr.To("of another release")
		cluster := clusterWith(t, interceptor.Funcs{}, have)
		logger := funcr.New(func(_, line string) { t.Errorf("%s: it logs %s", name, line) }, funcr.Options{})
		if err := InstallCRD(log.IntoContext(t.Context(), logger), cluster, test.want.DeepCopy(), "v1.4.0"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		live := readCRD(t, cluster, have.Name)
		stays := live.Spec.Versions[0].DeprecationWarning != nil && live.Annotations[fleet.AnnotationOperatorVersion] == test.version
		if stays != test.stays {
			t.Errorf("%s: it stays: %t", name, stays)
		}
	}
}

// CM-19, KL-23: definitions say by which release they were installed. An earlier one leaves them as they are.
func TestInstallNamesTheRelease(t *testing.T) {
	t.Parallel()
	crd := crds.ManagedCluster()[0]
	cluster := clusterWith(t, interceptor.Funcs{})
	for _, step := range []struct{ by, want string }{{"v1.4.0", "v1.4.0"}, {"v1.5.0", "v1.5.0"}, {"v1.4.0", "v1.5.0"}} {
		if err := InstallCRD(t.Context(), cluster, crd.DeepCopy(), step.by); err != nil {
			t.Fatal(err)
		}
		if got := readCRD(t, cluster, crd.Name).Annotations[upgrade.AnnotationVersion]; got != step.want {
			t.Errorf("by %s, it is of release %q, want %s", step.by, got, step.want)
		}
	}
}

// CM-19, KL-23: the same holds for definitions that are part of an installation.
func TestApplyNamesTheRelease(t *testing.T) {
	t.Parallel()
	for version, stays := range map[string]bool{"v1.4.0": true, "v1.6.0": false} {
		live, crd, applied := crds.Hub()[0], crds.Hub()[0], false
		crdversion.Set(live, "v1.5.0")
		cluster := clusterWith(t, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				applied = true
				return nil
			},
		}, live)
		c := &Cluster{Client: cluster, applied: map[reference]state{}, unwatched: map[schema.GroupVersionKind]bool{CRDs: true},
			Options: Options{Label: "installation", FieldManager: "operator", Scheme: cluster.Scheme(), Version: version}}
		if err := c.ApplyCRDs(t.Context(), "one", []*apiextensionsv1.CustomResourceDefinition{crd}); err != nil || applied == stays {
			t.Errorf("%s: it is applied: %t (%v)", version, applied, err)
		}
		if got := crd.Annotations[upgrade.AnnotationVersion]; !stays && got != version {
			t.Errorf("%s: it is of release %q", version, got)
		}
	}
}

// SC-22, KL-23: a definition of a group of Kubernetes that others have stays as it is, also for an installation. Its own is brought up to
// date, and so is any of another group.
func TestApplyOverOthers(t *testing.T) {
	t.Parallel()
	ours, ofKubernetes := crds.ManagedCluster()[0], crds.ClusterProperties()[0]
	for name, test := range map[string]struct {
		crd   *apiextensionsv1.CustomResourceDefinition
		label string
		none  bool
		stays bool
	}{
		"of nobody":                        {crd: ours},
		"of Kubernetes":                    {crd: ofKubernetes, stays: true},
		"of Kubernetes, not there":         {crd: ofKubernetes, none: true},
		"of Kubernetes, of the operator":   {crd: ofKubernetes, label: "one"},
		"of Kubernetes, of another object": {crd: ofKubernetes, label: "two"},
	} {
		live, applied := test.crd.DeepCopy(), false
		if test.label != "" {
			live.Labels = map[string]string{"installation": test.label}
		}
		existing := []client.Object{live}
		if test.none {
			existing = nil
		}
		cluster := clusterWith(t, interceptor.Funcs{
			Apply: func(context.Context, client.WithWatch, runtime.ApplyConfiguration, ...client.ApplyOption) error {
				applied = true
				return nil
			},
		}, existing...)
		c := &Cluster{Client: cluster, applied: map[reference]state{}, unwatched: map[schema.GroupVersionKind]bool{CRDs: true},
			Options: Options{Label: "installation", FieldManager: "operator", Scheme: cluster.Scheme(), Version: "v1.4.0"}}
		err := c.ApplyCRDs(t.Context(), "one", []*apiextensionsv1.CustomResourceDefinition{test.crd.DeepCopy()})
		if err != nil || applied == test.stays {
			t.Errorf("%s: it is applied: %t (%v)", name, applied, err)
		}
	}
}

// SC-18, SC-22: of two processes that install or upgrade the same definition at once, the second finds what the first has done.
func TestInstallAtOnce(t *testing.T) {
	t.Parallel()
	want := crds.Hub()[0]
	missed, conflicts := 1, 1
	cluster := clusterWith(t, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if missed--; missed >= 0 {
				return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
			}
			return c.Get(ctx, key, o, options...)
		},
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			if conflicts--; conflicts >= 0 {
				return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("changed"))
			}
			return c.Update(ctx, o, options...)
		},
	}, want.DeepCopy())
	want.Spec.Names.ShortNames = append(want.Spec.Names.ShortNames, "new")
	if err := InstallCRD(t.Context(), cluster, want.DeepCopy(), "v1.4.0"); err != nil {
		t.Fatal(err)
	}
	if names := readCRD(t, cluster, want.Name).Spec.Names; conflicts >= 0 || !slices.Contains(names.ShortNames, "new") {
		t.Errorf("%d conflicts are left, the definition is the old one: %+v", conflicts+1, names)
	}
}

// SC-22: without the right to read definitions, nothing is installed; without that to change one, it stays as it is.
func TestInstallWithoutRights(t *testing.T) {
	t.Parallel()
	forbidden := apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right"))
	want := crds.ManagedCluster()[0]
	cluster := clusterWith(t, interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return forbidden
		},
	})
	if err := InstallCRD(t.Context(), cluster, want.DeepCopy(), "v1.4.0"); !errors.Is(err, ErrCRDsForbidden) {
		t.Errorf("it may not be read: %v", err)
	}
	cluster = clusterWith(t, interceptor.Funcs{
		Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error { return forbidden },
	}, want.DeepCopy())
	if err := InstallCRD(t.Context(), cluster, want.DeepCopy(), "v1.4.0"); err != nil {
		t.Errorf("it may not be changed: %v", err)
	}
}

// CM-26: what is stored in a version that goes is migrated before the definition without this version is written.
func TestInstallOverStored(t *testing.T) {
	t.Parallel()
	var written []string
	cluster := clusterWith(t, interceptor.Funcs{
		Update: func(ctx context.Context, c client.WithWatch, o client.Object, options ...client.UpdateOption) error {
			live := definition()
			if err := c.Get(ctx, client.ObjectKeyFromObject(live), live); err != nil {
				return err
			}
			if o.GetName() == live.Name && slices.Contains(live.Status.StoredVersions, "v1beta1") { // as an API server does
				return apierrors.NewInvalid(CRDs.GroupKind(), live.Name, field.ErrorList{
					field.Invalid(field.NewPath("status", "storedVersions").Index(0), "v1beta1", "must appear in spec.versions")})
			}
			err := c.Update(ctx, o, options...)
			if err == nil {
				written = append(written, o.GetName())
			}
			return err
		},
	}, definition("v1beta1", "v1beta2"), set("a"))
	want := definition()
	want.Spec.Versions = want.Spec.Versions[1:]
	if err := InstallCRD(t.Context(), cluster, want.DeepCopy(), "v1.4.0"); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(written, " "); got != "a "+want.Name {
		t.Errorf("written: %s", got)
	}
	live := readCRD(t, cluster, want.Name)
	if len(live.Spec.Versions) != 1 || !slices.Equal(live.Status.StoredVersions, []string{"v1beta2"}) {
		t.Errorf("versions %v, stored in %v", live.Spec.Versions, live.Status.StoredVersions)
	}
}
