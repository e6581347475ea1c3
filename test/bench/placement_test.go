//go:build bench

package bench

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	clusterv1beta1 "github.com/capstan-io/capstan/api/cluster/v1beta1"
	clusterv1beta2 "github.com/capstan-io/capstan/api/cluster/v1beta2"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/test/env"
)

var placements = flag.String("placements", "100,1000", "how many placements to create at once")

const (
	placementClusters = 1000
	placementSet      = "bench"
	// creators is how many requests are under way at once while things are created.
	creators = 32
	// placementTimeout is how long all placements may take.
	placementTimeout = 15 * time.Minute
)

// What so many placements have as targets, in seconds.
var placementTargets = map[int]string{100: "0.6", 1000: "5"}

// TestPlacements measures how soon placements that are created at once have their decisions, in a fleet of 1,000 clusters
// with add-on scores.
func TestPlacements(t *testing.T) {
	r := newReport()
	t.Cleanup(func() {
		if err := errors.Join(r.print(os.Stdout), r.write(*out)); err != nil {
			t.Error(err)
		}
	})
	for text := range strings.SplitSeq(*placements, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("-placements %s: %q is no number of placements", *placements, text)
		}
		t.Run(text, func(t *testing.T) { measurePlacements(t, r, n) })
	}
}

func measurePlacements(t *testing.T, r *report, n int) {
	hub := env.StartHub(t, "placement", "--profiling")
	c := hub.Client(t)
	makeScoredClusters(t, c)
	awaitNamespaces(t, c)
	satisfied := watchSatisfied(t, hub, n)
	stopProfile := profile(t, hub, n, "placements")
	counted := metricsOf(t, hub)
	before, began := usageOf(t, hub.Pid()), time.Now()
	inParallel(t, n, func(i int) error { return c.Create(t.Context(), benchPlacement(i)) })
	created := time.Since(began)
	select {
	case <-satisfied:
	case <-time.After(placementTimeout):
		t.Fatalf("not all of %d placements are satisfied after %s", n, placementTimeout)
	}
	took, after, now := time.Since(began), usageOf(t, hub.Pid()), metricsOf(t, hub)
	stopProfile()
	logBusiest(t, "placements", now, counted, 1)
	add := func(name, unit, target string, value float64) {
		r.add(fmt.Sprintf("%d placements: %s", n, name), unit, target, value)
	}
	add("created to all satisfied", "s", placementTargets[n], took.Seconds())
	add("creating them", "s", "", created.Seconds())
	add("satisfied per second", "1/s", "", float64(n)/took.Seconds())
	add("hub CPU, each", "ms", "", float64((after.cpu-before.cpu).Microseconds())/1000/float64(n))
	add("requests, each", "", "", (now.requests-counted.requests)/float64(n))
	add("hub resident memory", "MB", "", after.rss)
}

func benchPlacement(i int) *clusterv1beta1.Placement {
	prioritize := func(s clusterv1beta1.ScoreCoordinate) clusterv1beta1.PrioritizerConfig {
		return clusterv1beta1.PrioritizerConfig{ScoreCoordinate: &s, Weight: 1}
	}
	return &clusterv1beta1.Placement{
		ObjectMeta: metav1.ObjectMeta{Namespace: placementSet, Name: fmt.Sprintf("placement-%d", i)},
		Spec: clusterv1beta1.PlacementSpec{
			NumberOfClusters: ptr.To[int32](10),
			PrioritizerPolicy: clusterv1beta1.PrioritizerPolicy{Mode: clusterv1beta1.PrioritizerPolicyModeExact,
				Configurations: []clusterv1beta1.PrioritizerConfig{
					prioritize(clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeAddOn,
						AddOn: &clusterv1beta1.AddOnScore{ResourceName: "demo", ScoreName: "demo"}}),
					prioritize(clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn,
						BuiltIn: clusterv1beta1.PrioritizerResourceAllocatableCPU}),
					prioritize(clusterv1beta1.ScoreCoordinate{Type: clusterv1beta1.ScoreCoordinateTypeBuiltIn,
						BuiltIn: clusterv1beta1.PrioritizerBalance}),
				}},
		},
	}
}

func makeScoredClusters(t *testing.T, c client.Client) {
	for _, o := range []client.Object{
		newNamespace(placementSet),
		&clusterv1beta2.ManagedClusterSet{ObjectMeta: metav1.ObjectMeta{Name: placementSet}},
		&clusterv1beta2.ManagedClusterSetBinding{ObjectMeta: metav1.ObjectMeta{Namespace: placementSet, Name: placementSet},
			Spec: clusterv1beta2.ManagedClusterSetBindingSpec{ClusterSet: placementSet}},
	} {
		if err := c.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	inParallel(t, placementClusters, func(i int) error {
		name := fmt.Sprintf("cluster-%d", i)
		mc := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{fleet.LabelClusterSet: placementSet}}}
		score := &clusterv1alpha1.AddOnPlacementScore{ObjectMeta: metav1.ObjectMeta{Namespace: name, Name: "demo"}}
		for _, o := range []client.Object{newNamespace(name), mc, score} {
			if err := c.Create(t.Context(), o); err != nil {
				return err
			}
		}
		mc.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("64")}
		mc.Status.Allocatable = corev1.ResourceList{corev1.ResourceCPU: *resource.NewQuantity(int64(i%64), resource.DecimalSI)}
		if err := c.Status().Update(t.Context(), mc); err != nil {
			return err
		}
		score.Status.Scores = []clusterv1alpha1.AddOnPlacementScoreItem{{Name: "demo", Value: int32(i%201 - 100)}}
		return c.Status().Update(t.Context(), score)
	})
}

// awaitNamespaces returns when the hub has put into the namespaces of the clusters what it puts there by itself.
func awaitNamespaces(t *testing.T, c client.Client) {
	env.Eventually(t, func(ctx context.Context) error {
		published := &metav1.PartialObjectMetadataList{}
		published.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		accounts := &metav1.PartialObjectMetadataList{}
		accounts.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ServiceAccountList"))
		if err := errors.Join(c.List(ctx, published), c.List(ctx, accounts)); err != nil {
			return err
		}
		if len(published.Items) < placementClusters || len(accounts.Items) < placementClusters {
			return fmt.Errorf("%d ConfigMaps, %d ServiceAccounts", len(published.Items), len(accounts.Items))
		}
		return nil
	})
}

// watchSatisfied returns what is closed when so many placements are satisfied.
func watchSatisfied(t *testing.T, hub *env.Server, n int) <-chan struct{} {
	config, err := hub.Config()
	if err != nil {
		t.Fatal(err)
	}
	objects, err := cache.New(config, cache.Options{Scheme: env.Scheme(), DefaultNamespaces: map[string]cache.Config{placementSet: {}}})
	if err != nil {
		t.Fatal(err)
	}
	informer, err := objects.GetInformer(t.Context(), &clusterv1beta1.Placement{}, cache.BlockUntilSynced(false))
	if err != nil {
		t.Fatal(err)
	}
	seen, all := map[string]bool{}, make(chan struct{})
	see := func(o any) {
		p, ok := o.(*clusterv1beta1.Placement)
		if ok && !seen[p.Name] && conditionTrue(p.Status.Conditions, fleet.ConditionPlacementSatisfied) {
			if seen[p.Name] = true; len(seen) == n {
				close(all)
			}
		}
	}
	if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: see,
		UpdateFunc: func(_, o any) { see(o) }}); err != nil {
		t.Fatal(err)
	}
	go func() {
		if err := objects.Start(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	if !objects.WaitForCacheSync(t.Context()) {
		t.Fatal("the informer of placements does not start")
	}
	return all
}

func newNamespace(name string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
}

func inParallel(t *testing.T, n int, do func(i int) error) {
	var all errgroup.Group
	all.SetLimit(creators)
	for i := range n {
		all.Go(func() error { return do(i) })
	}
	if err := all.Wait(); err != nil {
		t.Fatal(err)
	}
}
