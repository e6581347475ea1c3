package status

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	aboutv1alpha1 "github.com/capstan-io/capstan/api/about/v1alpha1"
	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	clusterv1alpha1 "github.com/capstan-io/capstan/api/cluster/v1alpha1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/text"
)

// longestClaim is how many characters of a value a ManagedCluster takes.
const longestClaim = 1024

// setClaims reports reserved claims first and all of them, then as many others as the limit allows, each sorted by name. An agent
// that reports neither claims nor properties leaves the list to others.
func (c *Controller) setClaims(ctx context.Context, mc *clusterv1.ManagedCluster) error {
	if !c.Claims && !c.Properties {
		return nil
	}
	values, err := c.claims(ctx)
	if err != nil {
		return err
	}
	var reserved, custom []clusterv1.ManagedClusterClaim
	var unfit []string
	for name, value := range values {
		reported := clusterv1.ManagedClusterClaim{Name: name, Value: value}
		switch {
		case value == "" || utf8.RuneCountInString(value) > longestClaim:
			unfit = append(unfit, name)
		case c.isReserved(name):
			reserved = append(reserved, reported)
		default:
			custom = append(custom, reported)
		}
	}
	byName := func(a, b clusterv1.ManagedClusterClaim) int { return cmp.Compare(a.Name, b.Name) }
	slices.SortFunc(reserved, byName)
	slices.SortFunc(custom, byName)
	slices.Sort(unfit)
	dropped := max(0, len(custom)-c.MaxCustomClaims)
	c.setClaimsReported(mc, len(custom), dropped, unfit)
	mc.Status.ClusterClaims = slices.Concat(reserved, custom[:len(custom)-dropped])
	return nil
}

// claims are what the cluster says about itself to the hub, by its name. A property goes before a claim.
func (c *Controller) claims(ctx context.Context) (map[string]string, error) {
	claimed, properties := map[string]string{}, map[string]string{}
	if c.Claims {
		claims := &clusterv1alpha1.ClusterClaimList{}
		if err := c.managed.List(ctx, claims); err != nil {
			return nil, fmt.Errorf("list the ClusterClaims of the managed cluster: %w", err)
		}
		for _, claim := range claims.Items {
			show(claimed, &claim.ObjectMeta, claim.Spec.Value)
		}
	}
	if c.Properties {
		list := &aboutv1alpha1.ClusterPropertyList{}
		if err := c.managed.List(ctx, list); err != nil {
			return nil, fmt.Errorf("list the ClusterProperties of the managed cluster: %w", err)
		}
		for _, property := range list.Items {
			show(properties, &property.ObjectMeta, property.Spec.Value)
		}
	}
	maps.Copy(claimed, properties)
	return claimed, nil
}

// show leaves out what is not for the hub.
func show(values map[string]string, of *metav1.ObjectMeta, value string) {
	if _, hidden := of.Labels[fleet.LabelSpokeOnly]; !hidden {
		values[of.Name] = value
	}
}

// setClaimsReported reports that claims are missing on the hub. Only clusters where some are missing, or were, have the
// condition.
func (c *Controller) setClaimsReported(mc *clusterv1.ManagedCluster, custom, dropped int, unfit []string) {
	if dropped == 0 && len(unfit) == 0 {
		if meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClaimsReported) != nil {
			c.setCondition(mc, metav1.Condition{
				Type: fleet.ConditionClaimsReported, Status: metav1.ConditionTrue, Reason: fleet.ReasonAllClaimsReported,
				Message: "All cluster claims are reported",
			})
		}
		return
	}
	var problems []string
	reason, event := fleet.ReasonClaimsInvalid, fleet.EventClusterClaimsInvalid
	if dropped > 0 {
		reason, event = fleet.ReasonClaimsTruncated, fleet.EventCustomClusterClaimsTruncated
		problems = append(problems, fmt.Sprintf("%d of %d custom claims are not reported: the agent reports at most %d (--max-custom-cluster-claims), the "+
			"first by name",
			dropped, custom, c.MaxCustomClaims))
	}
	if len(unfit) > 0 {
		problems = append(problems, fmt.Sprintf("not reported, because the hub takes values of 1 to %d characters: %s", longestClaim,
			text.FirstFew(unfit)))
	}
	message := strings.Join(problems, "; ")
	was := meta.FindStatusCondition(mc.Status.Conditions, fleet.ConditionClaimsReported)
	if was == nil || was.Status != metav1.ConditionFalse || was.Message != message {
		c.recordEvent(mc, corev1.EventTypeWarning, event, "ReportClaims", "%s", message)
	}
	c.setCondition(mc, metav1.Condition{
		Type: fleet.ConditionClaimsReported, Status: metav1.ConditionFalse, Reason: reason, Message: message,
	})
}

func (c *Controller) isReserved(name string) bool {
	return slices.Contains(fleet.ReservedClaims(), name) ||
		slices.ContainsFunc(c.ReservedClaimSuffixes, func(suffix string) bool { return strings.HasSuffix(name, suffix) })
}
