// Package framework has what the tests of several areas use: a hub and a managed cluster that they share, and objects and waits.
package framework

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"

	"github.com/go-logr/logr"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/test/env"
)

// Hub and Managed are one hub and one managed cluster, for all tests that do not break them. Each test has a cluster name of its own on the
// hub, and a namespace of its own on the managed cluster.
var Hub, Managed *env.Server

// Run starts the hub and the managed cluster, runs the tests of an area, and stops what they share. It returns the exit code; it is for
// TestMain.
func Run(m *testing.M) int {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

func run(m *testing.M) (code int, err error) {
	log.SetLogger(logr.Discard())
	dir, err := os.MkdirTemp("", "capstan-integration-")
	if err != nil {
		return 1, err
	}
	defer os.RemoveAll(dir)
	defer stopShared()
	SharedDir = dir
	if Hub, err = env.NewHub(Mkdir(dir, "hub"), ""); err != nil {
		return 1, err
	}
	if Managed, err = env.NewSandbox(Mkdir(dir, "managed")); err != nil {
		return 1, err
	}
	var both errgroup.Group
	for _, s := range []*env.Server{Hub, Managed} {
		both.Go(func() error {
			if err := s.Start(); err != nil {
				return err
			}
			return s.AwaitReady(context.Background())
		})
	}
	defer Hub.Stop()     //nolint:errcheck // tests that care stop servers of their own
	defer Managed.Stop() //nolint:errcheck // the same
	if err := both.Wait(); err != nil {
		return 1, err
	}
	return env.Run(m), nil
}

// SharedDir is of the test binary, and stopped are servers and programs that one test starts and others use, too.
var (
	SharedDir string
	stopped   []interface{ Stop() error }
	sharedMu  sync.Mutex
)

// Share has a server or program stopped when all tests have ended.
func Share(one interface{ Stop() error }) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	stopped = append(stopped, one)
}

func stopShared() {
	for _, one := range stopped {
		_ = one.Stop()
	}
}

// Mkdir makes a folder.
func Mkdir(parent, name string) string {
	dir := parent + "/" + name
	if err := os.Mkdir(dir, 0o700); err != nil {
		panic(err)
	}
	return dir
}

// Namespace makes a namespace on the managed cluster.
func Namespace(t *testing.T, c client.Client, name string) string {
	t.Helper()
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil &&
		!apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return name
}

// Work makes a ManifestWork of manifests in JSON.
func Work(cluster, name string, manifests ...string) *workv1.ManifestWork {
	w := &workv1.ManifestWork{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	w.Spec.Workload.Manifests = RawManifests(manifests...)
	return w
}

// RawManifests are manifests in JSON as a ManifestWork has them.
func RawManifests(manifests ...string) (list []workv1.Manifest) {
	for _, m := range manifests {
		list = append(list, workv1.Manifest{RawExtension: runtime.RawExtension{Raw: []byte(m)}})
	}
	return list
}

// ConfigMap is a ConfigMap in JSON, with a value under the key "key".
func ConfigMap(namespace, name, value string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":%q,"name":%q},"data":{"key":%q}}`, namespace, name,
		value)
}

// Create makes objects, and waits until the rights that they grant are in effect.
func Create(t *testing.T, c client.Client, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	for _, o := range objects {
		awaitGranted(t, c, o)
	}
}

// AwaitCondition waits until the work's condition, at its present generation, has the status, and returns the work.
func AwaitCondition(t *testing.T, c client.Client, w *workv1.ManifestWork, kind string,
	status metav1.ConditionStatus) *workv1.ManifestWork {
	t.Helper()
	got := &workv1.ManifestWork{}
	env.Eventually(t, func(ctx context.Context) error {
		if err := c.Get(ctx, client.ObjectKeyFromObject(w), got); err != nil {
			return err
		}
		cond := meta.FindStatusCondition(got.Status.Conditions, kind)
		if cond == nil || cond.Status != status || cond.ObservedGeneration != got.Generation {
			return fmt.Errorf("ManifestWork %s at generation %d: want %s=%s, have %+v", got.Name, got.Generation, kind, status,
				got.Status.Conditions)
		}
		return nil
	})
	return got
}

// AwaitConfigMap waits until a ConfigMap has the value under the key "key", and returns it.
func AwaitConfigMap(t *testing.T, c client.Client, namespace, name, value string) *corev1.ConfigMap {
	t.Helper()
	cm := &corev1.ConfigMap{}
	env.Eventually(t, func(ctx context.Context) error {
		*cm = corev1.ConfigMap{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, cm); err != nil {
			return err
		}
		if cm.Data["key"] != value || len(cm.Data) != 1 {
			return fmt.Errorf("ConfigMap %s/%s holds %v, want key=%s alone", namespace, name, cm.Data, value)
		}
		return nil
	})
	return cm
}

// AwaitGone waits until an object does not exist any more.
func AwaitGone(t *testing.T, c client.Client, o client.Object) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		err := c.Get(ctx, client.ObjectKeyFromObject(o), o)
		if apierrors.IsNotFound(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return fmt.Errorf("%T %s is still there", o, o.GetName())
	})
}
