package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	workinformers "open-cluster-management.io/api/client/work/informers/externalversions"
	workv1 "open-cluster-management.io/api/work/v1"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/options"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work"
	agentcodec "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/agent/codec"
	sourcecodec "open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/source/codec"
	"open-cluster-management.io/sdk-go/pkg/cloudevents/clients/work/store"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/capstan-io/capstan/test/env"
)

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(env.Run(m))
}

// sdkWorks are the works of an agent or of a source, as the client of the SDK has them.
type sdkWorks struct {
	*work.ClientHolder
	cluster string
	// stop ends the client, whose memory is lost.
	stop context.CancelFunc
}

// startSDKAgent starts the client of the agent of a cluster, which has a configuration of MQTT or gRPC.
func startSDKAgent(t *testing.T, config any, cluster string) *sdkWorks {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	holder, err := work.NewAgentClientHolder(ctx, options.NewGenericClientOptions(config, agentcodec.NewManifestBundleCodec(), cluster+"-sdk").
		WithClientWatcherStore(store.NewAgentInformerWatcherStore()).WithClusterName(cluster))
	if err != nil {
		t.Fatal(err)
	}
	informers := workinformers.NewSharedInformerFactoryWithOptions(holder.WorkInterface(), 0, workinformers.WithNamespace(cluster))
	go informers.Work().V1().ManifestWorks().Informer().RunWithContext(ctx)
	return &sdkWorks{holder, cluster, cancel}
}

// startSDKSource starts the client of a source of works, which knows of these.
func startSDKSource(t *testing.T, config any, source, cluster string, works ...*workv1.ManifestWork) *sdkWorks {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	memory := store.NewSourceInformerWatcherStore(ctx)
	holder, err := work.NewSourceClientHolder(ctx,
		options.NewGenericClientOptions(config, sourcecodec.NewManifestBundleCodec(), source+"-sdk").
			WithClientWatcherStore(memory).WithSourceID(source))
	if err != nil {
		t.Fatal(err)
	}
	informer := workinformers.NewSharedInformerFactory(holder.WorkInterface(), 0).Work().V1().ManifestWorks().Informer()
	memory.SetInformer(informer)
	go informer.RunWithContext(ctx)
	env.Eventually(t, func(context.Context) error {
		if !informer.HasSynced() {
			return errors.New("the informer of the source is not synced")
		}
		return nil
	})
	for _, known := range works {
		if err := memory.Add(known); err != nil {
			t.Fatal(err)
		}
	}
	return &sdkWorks{holder, cluster, cancel}
}

// await waits until the client has a work for which check returns nil.
func (w *sdkWorks) await(t *testing.T, name string, check func(*workv1.ManifestWork) error) *workv1.ManifestWork {
	t.Helper()
	var found *workv1.ManifestWork
	env.Eventually(t, func(ctx context.Context) (err error) {
		if found, err = w.ManifestWorks(w.cluster).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err
		}
		return check(found)
	})
	return found
}

// awaitGone waits until the client no longer has a work.
func (w *sdkWorks) awaitGone(t *testing.T, name string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		if found, err := w.ManifestWorks(w.cluster).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return errors.Join(err, fmt.Errorf("the work is still there: %v", found))
		}
		return nil
	})
}

// cleanUpAgain cleans up what an agent is told to once more, when the work is gone from the hub.
func (w *sdkWorks) cleanUpAgain(t *testing.T, name string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		_, err := w.ManifestWorks(w.cluster).Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":[]}}`),
			metav1.PatchOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("the work is still there"))
	})
}

// patch changes what the client has of a work, or its status, as soon as nobody else changes it meanwhile.
func (w *sdkWorks) patch(t *testing.T, name string, change func(*workv1.ManifestWork), subresources ...string) {
	t.Helper()
	env.Eventually(t, func(ctx context.Context) error {
		before, err := w.ManifestWorks(w.cluster).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		after := before.DeepCopy()
		change(after)
		patch, err := mergePatch(before, after)
		if err != nil {
			return err
		}
		_, err = w.ManifestWorks(w.cluster).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}, subresources...)
		return err
	})
}

func mergePatch(before, after any) ([]byte, error) {
	from, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	return jsonpatch.CreateMergePatch(from, to)
}

// finalizer is the one of an agent.
const finalizer = "cluster.open-cluster-management.io/manifest-work-cleanup"

// report puts the finalizer of the agent on a work, and reports that a condition is true.
func (w *sdkWorks) report(t *testing.T, name, condition string) {
	t.Helper()
	w.patch(t, name, func(work *workv1.ManifestWork) { work.Finalizers = []string{finalizer} })
	w.patch(t, name, func(work *workv1.ManifestWork) {
		meta.SetStatusCondition(&work.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue, Reason: "Test",
			ObservedGeneration: work.Generation, LastTransitionTime: metav1.NewTime(time.Now())})
	}, "status")
}

// cleanUp takes the finalizer off a work that is being deleted.
func (w *sdkWorks) cleanUp(t *testing.T, name string) {
	t.Helper()
	w.await(t, name, func(work *workv1.ManifestWork) error {
		if work.DeletionTimestamp.IsZero() {
			return errors.New("the work is not being deleted")
		}
		return nil
	})
	w.patch(t, name, func(work *workv1.ManifestWork) { work.Finalizers = []string{} })
}
