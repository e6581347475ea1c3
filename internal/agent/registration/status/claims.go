package status

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	c.setClaimsReported(mc, len(custom), dropped)
	mc.Status.ClusterClaims = slices.Concat(reserved, custom[:len(custom)-dropped])
	return nil
}

// setClaimsReported says on the hub that claims are missing there (gap R15). The condition is for clusters that have, or
// had, more than the limit; all others do without.
func (c *Controller) setClaimsReported(mc *clusterv1.ManagedCluster, custom, dropped int) {
	if dropped == 0 {
		if meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClaimsReported) != nil {
			c.setCondition(mc, metav1.Condition{
				Type: fleet.ConditionClaimsReported, Status: metav1.ConditionTrue, Reason: fleet.ReasonAllClaimsReported,
				Message: "All cluster claims are reported",
			})
		}
		return
	}
	message := fmt.Sprintf("%d of %d custom claims are not reported: the agent reports at most %d (--max-custom-cluster-claims), the first by name",
		dropped, custom, c.MaxCustomClaims)
	was := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClaimsReported)
	if was == nil || was.Status != metav1.ConditionFalse || was.Message != message {
		c.tell(mc, corev1.EventTypeWarning, fleet.EventCustomClusterClaimsTruncated, "ReportClaims", "%s", message)
	}
	c.setCondition(mc, metav1.Condition{
		Type: fleet.ConditionClaimsReported, Status: metav1.ConditionFalse, Reason: fleet.ReasonClaimsTruncated, Message: message,
	})
}

func (c *Controller) isReserved(name string) bool {
	return slices.Contains(fleet.ReservedClaims(), name) ||
		slices.ContainsFunc(c.ReservedClaimSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
