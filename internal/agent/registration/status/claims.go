package status

import (
	"cmp"
	"context"
	"encoding/json"
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

// mostClaimBytes is for all claims together, as JSON. The hub takes 256 KiB of status from an agent, and nothing of a larger one.
const mostClaimBytes = 224 << 10

// missing is what the hub is not told.
type missing struct {
	// custom is how many custom claims there are, dropped how many of them are beyond their limit.
	custom, dropped int
	// tooMuch is how many of the others are beyond mostClaimBytes.
	tooMuch int
	// unfit are those with values that the hub does not take.
	unfit []string
}

// setClaims reports reserved claims first and all of them, then as many others as the limit allows, each sorted by name, within
// mostClaimBytes. An agent that reports neither claims nor properties leaves the list to others.
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
	wanted := slices.Concat(reserved, custom[:len(custom)-dropped])
	fitting, err := firstFitting(wanted)
	if err != nil {
		return err
	}
	c.setClaimsReported(mc, missing{custom: len(custom), dropped: dropped, tooMuch: len(wanted) - len(fitting), unfit: unfit})
	mc.Status.ClusterClaims = fitting
	return nil
}

// firstFitting are the first claims that take mostClaimBytes.
func firstFitting(claims []clusterv1.ManagedClusterClaim) ([]clusterv1.ManagedClusterClaim, error) {
	size := 0
	for i := range claims {
		encoded, err := json.Marshal(&claims[i])
		if err != nil {
			return nil, fmt.Errorf("measure claim %s: %w", claims[i].Name, err)
		}
		if size += len(encoded) + len(","); size > mostClaimBytes {
			return claims[:i], nil
		}
	}
	return claims, nil
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
func (c *Controller) setClaimsReported(mc *clusterv1.ManagedCluster, m missing) {
	if m.dropped == 0 && m.tooMuch == 0 && len(m.unfit) == 0 {
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
	if m.dropped > 0 || m.tooMuch > 0 {
		reason, event = fleet.ReasonClaimsTruncated, fleet.EventCustomClusterClaimsTruncated
	}
	if m.dropped > 0 {
		problems = append(problems, fmt.Sprintf("%d of %d custom claims are not reported: the agent reports at most %d (--max-custom-cluster-claims), the "+
			"first by name",
			m.dropped, m.custom, c.MaxCustomClaims))
	}
	if m.tooMuch > 0 {
		problems = append(problems, fmt.Sprintf("%d claims are not reported: together with those before them they take more than the %d KiB "+
			"that the agent reports; shorten values, or label what the hub does not need with %s", m.tooMuch, mostClaimBytes>>10,
			fleet.LabelSpokeOnly))
	}
	if len(m.unfit) > 0 {
		problems = append(problems, fmt.Sprintf("not reported, because the hub takes values of 1 to %d characters: %s", longestClaim,
			text.FirstFew(m.unfit)))
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
