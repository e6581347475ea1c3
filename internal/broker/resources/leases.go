package resources

import (
	"context"
	"encoding/json"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/broker"
	"github.com/capstan-io/capstan/internal/broker/access"
	"github.com/capstan-io/capstan/internal/cloudevents"
	"github.com/capstan-io/capstan/internal/cloudevents/resource"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// leases are those by which agents tell that they are alive.
type leases struct{ source }

func newLeases(o Options) *leases {
	return &leases{source{Options: o, dataType: cloudevents.Leases, kind: coordinationv1.SchemeGroupVersion.WithKind("Lease"),
		empty:     func() client.Object { return &coordinationv1.Lease{} },
		list:      func() client.ObjectList { return &coordinationv1.LeaseList{} },
		clusterOf: clusterOfLease, ofCluster: inNamespace, encode: asItIs(cloudevents.Leases), version: resource.Version}}
}

func clusterOfLease(o client.Object) string {
	if o.GetName() != fleet.ClusterNamespaceLease {
		return ""
	}
	return o.GetNamespace()
}

// Prepare implements broker.Service.
func (l *leases) Prepare(event *cloudevents.Event, eventType cloudevents.Type, cluster string) (*broker.Write, error) {
	if eventType.SubResource != cloudevents.Spec || eventType.Action != cloudevents.Update {
		return nil, unsupported(eventType, "update the Lease "+fleet.ClusterNamespaceLease)
	}
	sent := &coordinationv1.Lease{}
	if err := resource.Decode(event, sent); err != nil {
		return nil, unreadable(err)
	}
	if err := check(l.dataType, cluster, sent.Namespace, sent.Name); err != nil {
		return nil, err
	}
	if sent.Name != fleet.ClusterNamespaceLease {
		return nil, forbidden(l.dataType, sent.Name, "an agent renews the Lease %s, and no other", fleet.ClusterNamespaceLease)
	}
	return &broker.Write{Name: sent.Name, Do: func(ctx context.Context, _ *access.Caller) error { return l.update(ctx, sent) }}, nil
}

// update writes the spec of the Lease. It has one writer, who need not know the last version.
func (l *leases) update(ctx context.Context, sent *coordinationv1.Lease) error {
	change, err := json.Marshal(map[string]any{"spec": sent.Spec})
	if err != nil {
		return err
	}
	lease := &coordinationv1.Lease{}
	lease.Namespace, lease.Name = sent.Namespace, sent.Name
	return l.Client.Patch(ctx, lease, client.RawPatch(types.MergePatchType, change))
}
