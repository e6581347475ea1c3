package manifest

import (
	"cmp"
	"slices"
)

const (
	// rankOther is for kinds without a place of their own: custom resources, mostly, whose definitions come first.
	rankOther = 1000
	// rankUnreadable is for manifests that cannot be applied anyway.
	rankUnreadable = 1001
)

// ranks is the order in which kinds are applied: what others need comes before them. Kinds of one rank do not need each
// other.
var ranks = rankOf(
	[]string{"PriorityClass", "Namespace", "CustomResourceDefinition", "StorageClass", "PersistentVolume", "PodSecurityPolicy"},
	[]string{"ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"},
	[]string{"NetworkPolicy", "ResourceQuota", "LimitRange", "PodDisruptionBudget", "ServiceAccount"},
	[]string{"Secret", "ConfigMap", "PersistentVolumeClaim"},
	[]string{"Service"},
	[]string{"DaemonSet", "Pod", "ReplicationController", "ReplicaSet", "Deployment", "HorizontalPodAutoscaler",
		"StatefulSet", "Job", "CronJob"},
	[]string{"APIService", "MutatingWebhookConfiguration", "ValidatingWebhookConfiguration",
		"ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"},
)

func rankOf(tiers ...[]string) map[string]int {
	ranks := map[string]int{}
	for rank, kinds := range tiers {
		for _, kind := range kinds {
			ranks[kind] = rank
		}
	}
	return ranks
}

// Rank says when a manifest is applied: those of a lower rank come first. It depends on the kind alone.
func (m Manifest) Rank() int {
	if m.Err != nil {
		return rankUnreadable
	}
	if rank, found := ranks[m.Object.GetKind()]; found {
		return rank
	}
	return rankOther
}

// Order sorts manifests by rank; those of one rank keep their order.
func Order(manifests []Manifest) {
	slices.SortStableFunc(manifests, func(a, b Manifest) int { return cmp.Compare(a.Rank(), b.Rank()) })
}
