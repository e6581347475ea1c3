package resources

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
	"github.com/capstan-io/capstan/internal/machinery/budget"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/managedcluster"
	"github.com/capstan-io/capstan/internal/machinery/patch"
)

// clusters are the ManagedClusters. Each subscriber has its own.
type clusters struct{ source }

func newClusters(o Options) *clusters {
	return &clusters{source{Options: o, dataType: cloudevents.ManagedClusters, kind: clusterv1.GroupVersion.WithKind("ManagedCluster"),
		empty:     func() client.Object { return &clusterv1.ManagedCluster{} },
		list:      func() client.ObjectList { return &clusterv1.ManagedClusterList{} },
		clusterOf: func(o client.Object) string { return o.GetName() },
		ofCluster: func(cluster string) []client.ListOption {
			return []client.ListOption{client.MatchingFields{nameField: cluster}}
		},
		encode: asItIs(cloudevents.ManagedClusters), version: resource.Version}}
}

// nameField is a field that the API selects by, and that the cache of clusters has an index for.
const nameField = "metadata.name"

// Start implements broker.Source. Besides, it has the rights of a cluster's agent reviewed when the hub has decided about the cluster.
func (c *clusters) Start(ctx context.Context) error {
	c.mu.Lock()
	started := c.started
	c.mu.Unlock()
	if started {
		return nil
	}
	if err := c.source.Start(ctx); err != nil {
		return err
	}
	informer, err := c.Cache.GetInformer(ctx, c.empty())
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(o, n any) {
			before, ok := o.(*clusterv1.ManagedCluster)
			now, too := n.(*clusterv1.ManagedCluster)
			if ok && too && decidedOtherwise(before, now) {
				c.Review(now.Name)
			}
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			if cluster, ok := o.(*clusterv1.ManagedCluster); ok {
				c.Review(cluster.Name)
			}
		},
	})
	return err
}

// decidedOtherwise tells whether the agent of a cluster may have other rights than before.
func decidedOtherwise(before, now *clusterv1.ManagedCluster) bool {
	condition := func(cluster *clusterv1.ManagedCluster) bool {
		return meta.IsStatusConditionTrue(cluster.Status.Conditions, fleet.ConditionHubAccepted)
	}
	return before.UID != now.UID || before.Spec.HubAcceptsClient != now.Spec.HubAcceptsClient || condition(before) != condition(now) ||
		managedcluster.Denied(before) != managedcluster.Denied(now) || managedcluster.CutOff(before) != managedcluster.CutOff(now) ||
		before.Annotations[fleet.AnnotationCredentialsNotBefore] != now.Annotations[fleet.AnnotationCredentialsNotBefore] ||
		(before.DeletionTimestamp == nil) != (now.DeletionTimestamp == nil)
}

// Prepare implements broker.Service.
func (c *clusters) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if err := checkQuantities(event); err != nil {
		return nil, unreadable(err)
	}
	sent := &clusterv1.ManagedCluster{}
	if err := resource.Decode(event, sent); err != nil {
		return nil, unreadable(err)
	}
	if sent.Name != cluster || sent.Namespace != "" {
		return nil, forbidden(c.dataType, sent.Name, "metadata.name is %q in an event for cluster %q: an agent writes its own cluster", sent.Name,
			cluster)
	}
	switch {
	case eventType.SubResource == cloudevents.Spec && eventType.Action == cloudevents.Create:
		return &broker.Write{Do: func(ctx context.Context, caller *access.Caller) error { return c.create(ctx, caller, sent) }}, nil
	case eventType.SubResource == cloudevents.Spec && eventType.Action == cloudevents.Update:
		return &broker.Write{Do: func(ctx context.Context, _ *access.Caller) error { return c.update(ctx, sent) }}, nil
	case eventType.SubResource == cloudevents.Status && eventType.Action == cloudevents.Update:
		return &broker.Write{Subresource: "status",
			Do: func(ctx context.Context, _ *access.Caller) error { return c.updateStatus(ctx, sent) }}, nil
	}
	return nil, unsupported(eventType, "create and update its ManagedCluster, and update the status")
}

// quantities has the fields of a ManagedCluster with quantities. JSON is read into it as into a ManagedCluster: with keys in any case, and
// repeated ones.
type quantities struct {
	Status struct {
		Capacity    map[string]quantity `json:"capacity"`
		Allocatable map[string]quantity `json:"allocatable"`
	} `json:"status"`
}

// quantity is checked where a [k8s.io/apimachinery/pkg/api/resource.Quantity] would be parsed.
type quantity struct{}

// UnmarshalJSON implements json.Unmarshaler. Like that of Quantity, it takes a string or a number, and knows no escapes.
func (*quantity) UnmarshalJSON(value []byte) error {
	return budget.Quantity(strings.Trim(string(value), `"`))
}

// checkQuantities fails if it would take too long to read the quantities in the data of an event. There may be no data.
func checkQuantities(event *cloudevents.Event) error {
	if len(event.Data) == 0 {
		return nil
	}
	return event.ReadData(&quantities{})
}

// create asks for the cluster to be taken in, as an agent may: with how it is reached, and annotations of agents. Who asks, the hub notes.
func (c *clusters) create(ctx context.Context, caller *access.Caller, sent *clusterv1.ManagedCluster) error {
	cluster := &clusterv1.ManagedCluster{
		ObjectMeta: metav1.ObjectMeta{Name: sent.Name, Annotations: annotationsOfAgent(sent.Annotations)},
		Spec:       clusterv1.ManagedClusterSpec{ManagedClusterClientConfigs: sent.Spec.ManagedClusterClientConfigs},
	}
	metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, fleet.AnnotationRequestedBy, caller.Username)
	return c.Client.Create(ctx, cluster)
}

// annotationsOfAgent are those that an agent may set when it creates its ManagedCluster.
func annotationsOfAgent(annotations map[string]string) map[string]string {
	kept := maps.Clone(annotations)
	maps.DeleteFunc(kept, func(key, _ string) bool { return !strings.HasPrefix(key, fleet.AnnotationAgentPrefix) })
	return kept
}

// update writes how the cluster is reached, and annotations that agents change. What else the agent sends, the hub knows better.
func (c *clusters) update(ctx context.Context, sent *clusterv1.ManagedCluster) error {
	metadata, annotations := map[string]any{}, maps.Clone(sent.Annotations)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return !fleet.AgentChangesAnnotation(key) })
	if len(annotations) > 0 {
		metadata["annotations"] = annotations
	}
	change, err := json.Marshal(map[string]any{
		"metadata": metadata, "spec": map[string]any{"managedClusterClientConfigs": sent.Spec.ManagedClusterClientConfigs},
	})
	if err != nil {
		return err
	}
	cluster := &clusterv1.ManagedCluster{ObjectMeta: metav1.ObjectMeta{Name: sent.Name}}
	return c.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType, change))
}

// conditionsOfHub are the conditions of a ManagedCluster that no agent writes.
var conditionsOfHub = []string{fleet.ConditionHubAccepted, fleet.ConditionHubDenied}

// updateStatus writes the status, except for the conditions that say what the hub has decided.
func (c *clusters) updateStatus(ctx context.Context, sent *clusterv1.ManagedCluster) error {
	cluster := &clusterv1.ManagedCluster{}
	if err := c.Reader.Get(ctx, client.ObjectKey{Name: sent.Name}, cluster); err != nil {
		return err
	}
	if err := checkVersion(c.dataType, cluster, sent); err != nil {
		return err
	}
	before := cluster.DeepCopy()
	cluster.Status = *sent.Status.DeepCopy()
	cluster.Status.Conditions = slices.DeleteFunc(cluster.Status.Conditions, ofHub)
	for _, condition := range before.Status.Conditions {
		if ofHub(condition) {
			cluster.Status.Conditions = append(cluster.Status.Conditions, condition)
		}
	}
	if equality.Semantic.DeepEqual(before.Status, cluster.Status) {
		return nil
	}
	_, err := patch.Status(ctx, c.Client, cluster, before)
	return err
}

func ofHub(condition metav1.Condition) bool { return slices.Contains(conditionsOfHub, condition.Type) }

// checkVersion fails with a conflict if an agent has changed another version of an object than the present one. An agent that does not say
// which one it changed does not want to know.
func checkVersion(dataType cloudevents.DataType, now, sent metav1.Object) error {
	switch version := sent.GetResourceVersion(); version {
	case "", "0", now.GetResourceVersion():
		return nil
	default:
		return apierrors.NewConflict(groupResource(dataType), sent.GetName(),
			fmt.Errorf("it has the resource version %s, and what the agent changed had %s; change what it is now", now.GetResourceVersion(),
				version))
	}
}
