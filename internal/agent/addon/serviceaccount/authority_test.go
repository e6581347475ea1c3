package serviceaccount

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	authenticationv1beta1 "github.com/capstan-io/capstan/api/authentication/v1beta1"
)

// MS-03: when the file with the certificate authority of the cluster changes, all accounts of the cluster are reconciled, and get it.
func TestAuthorityChanges(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(content string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("one")
	scheme := runtime.NewScheme()
	if err := authenticationv1beta1.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	account := func(cluster, name string) client.Object {
		return &authenticationv1beta1.ManagedServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: cluster, Name: name}}
	}
	hub := fake.NewClientBuilder().WithScheme(scheme).WithObjects(account("c1", "ci"), account("c1", "cd"), account("c2", "other")).Build()
	known := make(chan struct{})
	close(known)
	c := &Controller{Options: Options{Cluster: "c1", Managed: &rest.Config{TLSClientConfig: rest.TLSClientConfig{CAFile: file}}},
		session: &session{hub: cached{from: hub}, known: known}}
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	if err := c.start(t.Context(), queue); err != nil {
		t.Fatal(err)
	}
	write("two")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	context.AfterFunc(ctx, queue.ShutDown)
	got, want := sets.New[reconcile.Request](), sets.New(c.request(""), c.request("ci"), c.request("cd"))
	for !got.IsSuperset(want) {
		request, ended := queue.Get()
		if ended {
			t.Fatalf("reconciled are %v, want %v", got, want)
		}
		got.Insert(request)
		queue.Done(request)
	}
	if !got.Equal(want) {
		t.Errorf("reconciled are %v, want %v", got, want)
	}
	if ca, err := certificateAuthority(c.Managed); err != nil || string(ca) != "two" {
		t.Errorf("the certificate authority is %q, %v", ca, err)
	}
}

// MS-03: what is watched is what is read.
func TestAuthorityFile(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(file, []byte("from the file"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		config        rest.TLSClientConfig
		watches, read string
	}{
		"in a pod":          {rest.TLSClientConfig{CAFile: file}, file, "from the file"},
		"in the kubeconfig": {rest.TLSClientConfig{CAData: []byte("data")}, "", "data"},
		"in both":           {rest.TLSClientConfig{CAData: []byte("data"), CAFile: file}, "", "data"},
		"of the system":     {rest.TLSClientConfig{}, "", ""},
	} {
		config := &rest.Config{TLSClientConfig: test.config}
		ca, err := certificateAuthority(config)
		if watched := authorityFile(config); err != nil || string(ca) != test.read || watched != test.watches {
			t.Errorf("%s: %q is read, %v, and %q watched; want %q and %q", name, ca, err, watched, test.read, test.watches)
		}
	}
}
