package agent

import (
	"context"
	"errors"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/capstan-io/capstan/deploy/crds"
)

// SC-22: what the agent installs in the managed cluster is installed again when it is removed, before the agent looks after it or later.
func TestRemovedCRD(t *testing.T) {
	t.Parallel()
	want := crds.ManagedCluster()[0]
	read := make(chan struct{}, 100)
	managed := interceptor.NewClient(fake.NewClientBuilder().WithScheme(managedScheme()).Build(), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
			err := c.Get(ctx, key, o, opts...)
			if err == nil {
				read <- struct{}{}
			}
			return err
		},
	})
	clock := clocktesting.NewFakeClock(time.Now())
	a := &Agent{clock: clock}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- a.keepCRD(ctx, managed, want) }()
	expectInstalled := func() {
		t.Helper()
		// It rests once it has installed it.
		err := wait.PollUntilContextTimeout(ctx, time.Millisecond, time.Minute, true,
			func(context.Context) (bool, error) { return clock.HasWaiters(), nil })
		if err != nil {
			t.Fatal("it is not installed")
		}
		if err := managed.Get(ctx, client.ObjectKeyFromObject(want), &apiextensionsv1.CustomResourceDefinition{}); err != nil {
			t.Error(err)
		}
		<-read
	}
	expectInstalled()
	clock.Step(firstRestart)
	<-read
	if err := managed.Delete(ctx, want.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	expectInstalled()
	stop()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// SC-22: where an operator has installed the kinds, and the agent may not look at them, it leaves them alone.
func TestCRDsOfAnother(t *testing.T) {
	t.Parallel()
	managed := interceptor.NewClient(fake.NewClientBuilder().WithScheme(managedScheme()).Build(), interceptor.Funcs{
		Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewForbidden(schema.GroupResource{}, "", errors.New("no right"))
		},
	})
	if err := (&Agent{}).keepCRD(t.Context(), managed, crds.ManagedCluster()[0]); err != nil {
		t.Error(err)
	}
}
