package argocd

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	argov1alpha1 "github.com/argoproj/argo-cd/v3/pkg/apis/application/v1alpha1"
)

const (
	// leaseSeconds is how often the cluster that is lost has a heartbeat; the other one keeps its minute, so that it is not lost because
	// the machine is busy. lostAfter is when the hub gives a cluster up: docs/fleet.md.
	leaseSeconds = 2
	lostAfter    = 5 * leaseSeconds * time.Second
	// requeueAfter is when the ApplicationSet looks at the decisions again.
	requeueAfter = time.Second
	// tolerated is how long the placement tolerates that a cluster is lost, in the last part.
	tolerated = 5 * time.Second
)

// applicationSetOfPull is that of the guide to Argo CD, with what the guide to its pull model adds, and a shorter time.
var applicationSetOfPull = strings.NewReplacer(
	"requeueAfterSeconds: 30", fmt.Sprintf("requeueAfterSeconds: %d", int(requeueAfter.Seconds())),
	"      name: '{{clusterName}}-guestbook-app'\n", `      name: '{{clusterName}}-guestbook-app'
      labels:
        apps.open-cluster-management.io/pull-to-ocm-managed-cluster: 'true'
      annotations:
        argocd.argoproj.io/skip-reconcile: 'true'
        apps.open-cluster-management.io/ocm-managed-cluster: '{{clusterName}}'
`).Replace(applicationSetOfGuide)

// AR-01 AR-05 AR-06 AR-07 PL-04 PL-06 RG-28: the guide to migration, step by step. The Application is on one of two clusters, and moves
// when that is lost, when the other one is maintained, and when the time is over for which its placement tolerates that it is lost.
func TestMigration(t *testing.T) {
	t.Parallel()
	f := newFleetOfGuides(t)
	f.capstan(t, "clusterset", "bind", "global", "--namespace", argoNamespace)
	f.hub.apply(t, argoNamespace, placementOfGuide)
	f.awaitSelected(t, guestbook, "cluster1", "cluster2")
	f.hub.awaitRegistered(t, argoNamespace, "clusters", "cluster1", "cluster2")
	f.hub.apply(t, argoNamespace, applicationSetOfPull)
	f.hub.awaitApplicationsOf(t, "guestbook-app", "cluster1-guestbook-app", "cluster2-guestbook-app")
	for _, c := range f.clusters {
		f.awaitPulled(t, c, c.name+"-guestbook-app")
	}

	f.patchPlacement(t, `{"spec":{"numberOfClusters":1}}`)
	one, other := f.awaitOneSelected(t)
	f.awaitOnlyOn(t, one)
	undeployOn(t, other)

	f.lose(t, one, other, 0)
	f.bringBack(t, one)
	f.awaitOnlyOn(t, other)

	began := time.Now()
	f.hub.patch(t, other.managed(), `{"spec":{"taints":[{"effect":"NoSelect","key":"maintenance"}]}}`)
	f.awaitMoved(t, one)
	t.Logf("the Application is on the other cluster %s after the taint", time.Since(began))
	f.awaitOnlyOn(t, one)
	undeployOn(t, other)
	f.hub.patch(t, other.managed(), `{"spec":{"taints":null}}`)

	f.patchPlacement(t, fmt.Sprintf(`{"spec":{"tolerations":[{"key":"cluster.open-cluster-management.io/unreachable","operator":"Exists",
		"tolerationSeconds":%d}]}}`, int(tolerated.Seconds())))
	f.lose(t, one, other, tolerated)
}

// guestbook is the placement of the guides.
const guestbook = "guestbook-app-placement"

func (f *fleet) patchPlacement(t *testing.T, change string) {
	t.Helper()
	f.hub.patch(t, object("cluster.open-cluster-management.io/v1beta1", "Placement", argoNamespace, guestbook), change)
}

// managed is the ManagedCluster.
func (c *cluster) managed() *unstructured.Unstructured {
	return object("cluster.open-cluster-management.io/v1", "ManagedCluster", "", c.name)
}

// awaitOneSelected waits until the placement selects one of the two clusters, and returns this one and the other.
func (f *fleet) awaitOneSelected(t *testing.T) (one, other *cluster) {
	t.Helper()
	eventually(t, func(context.Context) error {
		selected := f.selected(t, guestbook)
		if len(selected) != 1 {
			return fmt.Errorf("%q are selected", selected)
		}
		isSelected := func(c *cluster) bool { return c.name == selected[0] }
		i := slices.IndexFunc(f.clusters, isSelected)
		one, other = f.clusters[i], f.clusters[1-i]
		return nil
	})
	return one, other
}

// awaitOnlyOn waits until a cluster alone is selected, and its Application the only one, which it has got and says to be healthy.
func (f *fleet) awaitOnlyOn(t *testing.T, c *cluster) {
	t.Helper()
	f.awaitSelected(t, guestbook, c.name)
	f.awaitMoved(t, c)
	f.awaitPulled(t, c, c.name+"-guestbook-app")
}

// awaitMoved waits until the only Application is that of a cluster, which has got it.
func (f *fleet) awaitMoved(t *testing.T, to *cluster) *argov1alpha1.Application {
	t.Helper()
	app := &f.hub.awaitApplicationsOf(t, "guestbook-app", to.name+"-guestbook-app")[0]
	eventually(t, func(ctx context.Context) error {
		return to.Get(ctx, client.ObjectKeyFromObject(app), &argov1alpha1.Application{})
	})
	return app
}

// undeployOn does what the Argo CD of a cluster does when its Application is deleted, which it waits for.
func undeployOn(t *testing.T, c *cluster) {
	t.Helper()
	key := client.ObjectKey{Namespace: argoNamespace, Name: c.name + "-guestbook-app"}
	eventually(t, func(ctx context.Context) error {
		app := &argov1alpha1.Application{}
		if err := c.Get(ctx, key, app); apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			return err
		}
		if app.DeletionTimestamp.IsZero() {
			return fmt.Errorf("Application %s is not deleted on the cluster", key.Name)
		}
		app.Finalizers = nil
		return errors.Join(errors.New("it is still there"), c.Update(ctx, app))
	})
}

// lose has a cluster stop as it is, and waits until its Application is on the other one: not before the hub has given the cluster up, and
// not before the placement tolerates it no longer. The log says how long it takes.
func (f *fleet) lose(t *testing.T, lost, other *cluster, delay time.Duration) {
	t.Helper()
	f.hub.patch(t, lost.managed(), fmt.Sprintf(`{"spec":{"leaseDurationSeconds":%d}}`, leaseSeconds))
	f.awaitHeartbeat(t, lost)
	lost.agent.kill()
	heartbeat := f.heartbeat(t, lost)
	since := f.awaitUnreachable(t, lost)
	if earliest := heartbeat.Add(lostAfter).Truncate(time.Second); since.Before(earliest) {
		t.Errorf("%s is unreachable since %s, and its last heartbeat was at %s", lost.name, since, heartbeat)
	}
	app := f.awaitMoved(t, other)
	t.Logf("the Application is on the other cluster %s after the last heartbeat", time.Since(heartbeat))
	if app.CreationTimestamp.Time.Before(since.Add(delay)) {
		t.Errorf("the Application for the other cluster is of %s, and the taint of %s", app.CreationTimestamp, since)
	}
	f.awaitOnlyOn(t, other)
}

// heartbeat is the last one of a cluster.
func (f *fleet) heartbeat(t *testing.T, c *cluster) time.Time {
	t.Helper()
	lease := &coordinationv1.Lease{}
	if err := f.hub.Get(t.Context(), client.ObjectKey{Namespace: c.name, Name: "managed-cluster-lease"}, lease); err != nil {
		t.Fatal(err)
	}
	if lease.Spec.RenewTime == nil {
		return time.Time{}
	}
	return lease.Spec.RenewTime.Time
}

// awaitHeartbeat waits for another heartbeat of a cluster: its agent knows then how often the hub expects them.
func (f *fleet) awaitHeartbeat(t *testing.T, c *cluster) {
	t.Helper()
	last := f.heartbeat(t, c)
	eventually(t, func(context.Context) error {
		if !f.heartbeat(t, c).After(last) {
			return fmt.Errorf("the last heartbeat of %s was at %s", c.name, last)
		}
		return nil
	})
}

// awaitUnreachable waits until the hub does not know whether a cluster is available, and has tainted it, and returns since when.
func (f *fleet) awaitUnreachable(t *testing.T, c *cluster) (since time.Time) {
	t.Helper()
	eventually(t, func(ctx context.Context) (err error) {
		status, taints, err := f.healthOf(ctx, c)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(taints, func(taint map[string]any) bool {
			return taint["key"] == "cluster.open-cluster-management.io/unreachable" && taint["effect"] == "NoSelect"
		})
		if status != "Unknown" || i < 0 {
			return fmt.Errorf("that %s is available is %s, and it has the taints %v", c.name, status, taints)
		}
		since, err = time.Parse(time.RFC3339, fmt.Sprint(taints[i]["timeAdded"]))
		return err
	})
	return since
}

// healthOf is the status of the condition that a cluster is available, and its taints.
func (f *fleet) healthOf(ctx context.Context, c *cluster) (available string, taints []map[string]any, err error) {
	managed := c.managed()
	if err := f.hub.Get(ctx, client.ObjectKeyFromObject(managed), managed); err != nil {
		return "", nil, err
	}
	conditions, _, err := unstructured.NestedSlice(managed.Object, "status", "conditions")
	if err != nil {
		return "", nil, err
	}
	for _, condition := range conditions {
		if fields, ok := condition.(map[string]any); ok && fields["type"] == "ManagedClusterConditionAvailable" {
			available = fmt.Sprint(fields["status"])
		}
	}
	listed, _, err := unstructured.NestedSlice(managed.Object, "spec", "taints")
	for _, taint := range listed {
		if fields, ok := taint.(map[string]any); ok {
			taints = append(taints, fields)
		}
	}
	return available, taints, err
}

// bringBack starts the agent of a lost cluster, and waits until that is available, and has given up what it had.
func (f *fleet) bringBack(t *testing.T, c *cluster) {
	t.Helper()
	f.hub.patch(t, c.managed(), `{"spec":{"leaseDurationSeconds":60}}`)
	if err := f.startAgent(c); err != nil {
		t.Fatal(err)
	}
	eventually(t, func(ctx context.Context) error {
		if available, taints, err := f.healthOf(ctx, c); err != nil || available != string(metav1.ConditionTrue) || len(taints) > 0 {
			return errors.Join(err, fmt.Errorf("that %s is available is %s, and it has the taints %v", c.name, available, taints))
		}
		return nil
	})
	undeployOn(t, c)
}
