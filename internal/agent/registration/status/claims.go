package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// setClaims is RG-27: reserved claims first and all of them, then as many others as the limit allows, each sorted by name.
func (c *Controller) setClaims(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	claims := &clusterv1alpha1.ClusterClaimList{}
	if err := c.managed.List(ctx, claims); err != nil {
		return fmt.Errorf("list the ClusterClaims of the managed cluster: %w", err)
	}
	var reserved, custom []clusterv1.ManagedClusterClaim
	for _, claim := range claims.Items {
		if _, hidden := claim.Labels[fleet.LabelSpokeOnly]; hidden {
			continue
		}
		reported := clusterv1.ManagedClusterClaim{Name: claim.Name, Value: claim.Spec.Value}
		if c.isReserved(claim.Name) {
			reserved = append(reserved, reported)
		} else {
			custom = append(custom, reported)
		}
	}
	byName := func(a, b clusterv1.ManagedClusterClaim) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(reserved, byName)
	slices.SortFunc(custom, byName)
	dropped := max(0, len(custom)-c.MaxCustomClaims)
	custom = custom[:len(custom)-dropped]
	c.tellDropped(mc, dropped)
	mc.Status.ClusterClaims = slices.Concat(reserved, custom)
	return nil
}

// tellDropped speaks up once for each number of claims that are not reported. The event goes to the cluster's namespace,
// the only one that the agent may write to.
func (c *Controller) tellDropped(mc *clusterv1.ManagedCluster, dropped int) {
	if dropped > 0 && dropped != c.dropped {
		regarding := &corev1.ObjectReference{
			APIVersion: clusterv1.GroupVersion.String(), Kind: "ManagedCluster", Namespace: mc.Name, Name: mc.Name, UID: mc.UID,
		}
		c.recorder.Eventf(regarding, nil, corev1.EventTypeWarning, fleet.EventCustomClusterClaimsTruncated, "ReportClaims",
			"%d custom claims are not reported: the agent reports at most %d (--max-custom-cluster-claims)", dropped, c.MaxCustomClaims)
	}
	c.dropped = dropped
}

func (c *Controller) isReserved(name string) bool {
	return slices.Contains(fleet.ReservedClaims(), name) ||
		slices.ContainsFunc(c.ReservedClaimSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
