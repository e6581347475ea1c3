package admission

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	workv1 "github.com/capstan-io/capstan/api/work/v1"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// What agents and joining agents write is held in the memory of the hub and of all clients that watch it. These are the limits in bytes
// of JSON, about ten times what agents normally write.
const (
	// mostRequestBytes is for a CertificateSigningRequest. One with an RSA key of 8192 bits takes 4 KiB.
	mostRequestBytes = 16 << 10
	// mostClusterBytes is for the metadata and the spec of a ManagedCluster, with room for about 40 CA certificates.
	mostClusterBytes = 64 << 10
	// mostClusterStatusBytes is for the status of a ManagedCluster, without what the hub writes there, with room for 200 of the longest
	// claims.
	mostClusterStatusBytes = 256 << 10
	// mostManagedBytes is for metadata.managedFields of any object, where long lists are one entry each.
	mostManagedBytes = 256 << 10
	// mostNamespaceBytes is for the conditions of one entry of status.managedNamespaces of a ManagedCluster.
	mostNamespaceBytes = 4 << 10
	// mostAddOnStatusBytes is for the conditions of a ManagedClusterAddOn.
	mostAddOnStatusBytes = 64 << 10
	// mostWorkStatusBytes is for the status of a ManifestWork, and again for each of its manifests.
	mostWorkStatusBytes = 64 << 10
	// mostWorkAnnotationBytes is for the annotations of a ManifestWork.
	mostWorkAnnotationBytes = 16 << 10
	// mostLeaseBytes is for a Lease. That of a cluster takes 1 KiB.
	mostLeaseBytes = 8 << 10
	// mostEventBytes is for an event, whose note has at most 1 KiB.
	mostEventBytes = 8 << 10
)

const (
	// DefaultJoinLimit is how many undecided requests and pending clusters one bootstrap credential may have.
	DefaultJoinLimit = 1000
	// tokensOfAnAccount is how many credentials of one account may have that many: no single one uses up what the others need.
	tokensOfAnAccount = 4
	// agentRequestLimit is how many undecided requests one agent may have. An agent itself stops at ten, and at ten for each add-on.
	agentRequestLimit = 200
	// agentKeptLimit is how many requests of one agent the hub may have, with those that it decided on and keeps for a while: renewals are
	// approved at once. It leaves room for a hundred add-ons whose certificates are
	// valid for ten minutes.
	agentKeptLimit = 2000
)

// stranger reports whether the writes of the sender are limited.
func (s Sender) stranger() bool { return s.Joining || len(s.Clusters) > 0 }

// actsFor reports whether the sender acts for the cluster: as its agent, or as one of its add-ons.
func (s Sender) actsFor(cluster string) bool { return slices.Contains(s.Behind, cluster) }

// limitSize returns an error if an object is too large. It fails with 413.
func limitSize(object any, most int, what string, path *field.Path) error {
	encoded, err := json.Marshal(object)
	if err != nil {
		return apierrors.NewInternalError(fmt.Errorf("measure %s: %w", what, err))
	}
	if len(encoded) <= most {
		return nil
	}
	of := what
	if path != nil {
		of = fmt.Sprintf("%s of %s", path, what)
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s takes %d bytes; agents and those who join may write %d at most", of,
		len(encoded), most))
}

// limitGrowth does the same for an update. An object that other senders have made too large can be updated by a sender that adds
// nothing.
func limitGrowth(now, before any, most int, what string, path *field.Path) error {
	after, err := json.Marshal(now)
	old, errOld := json.Marshal(before)
	if err == nil && errOld == nil && len(after) <= len(old) {
		return nil
	}
	return limitSize(now, most, what, path)
}

// Waiting is how many objects wait for a decision: all of the sender's, and those with the sender's present credential.
type Waiting struct {
	OfUser       int
	OfCredential int
}

// tooMany reports whether a joining sender has to wait, and how many objects of it wait: a credential may have as many as the limit, and
// its account a multiple of that. A credential without an ID counts as its account.
func (w Waiting) tooMany(sender Sender, joinLimit int) (int, bool) {
	switch {
	case sender.Credential == "":
		return w.OfUser, w.OfUser >= joinLimit
	case w.OfCredential >= joinLimit:
		return w.OfCredential, true
	}
	return w.OfUser, w.OfUser >= tokensOfAnAccount*joinLimit
}

const joinLimitHint = "--join-limit of the hub is how many one bootstrap credential may have, and all tokens of one account together four times that"

// ValidateRequestCount keeps a sender from filling the hub with CertificateSigningRequests. undecided is how many of its requests wait
// already, and kept how many there are with those that are decided. It fails with 429.
func ValidateRequestCount(sender Sender, undecided Waiting, kept, joinLimit int) error {
	if !sender.stranger() {
		return nil
	}
	if !sender.Joining && kept >= agentKeptLimit {
		return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: the hub has %d requests of user %q, of %d at most for the agents of a cluster, "+
			"decided or not. Delete some, or wait: it keeps those that are decided for an hour or two", requestResource, kept, sender.Name,
			agentKeptLimit))
	}
	waiting, refused, hint := undecided.OfUser, undecided.OfUser >= agentRequestLimit, "the agents of a cluster have a few"
	if sender.Joining {
		waiting, refused = undecided.tooMany(sender, joinLimit)
		hint = joinLimitHint
	}
	if !refused {
		return nil
	}
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q has %d requests that nobody has decided on, and may have no more; %s. "+
		"Approve, deny or delete some, or wait: they expire after a day", requestResource, sender.Name,
		waiting, hint))
}

// ValidateClusterCount does the same for ManagedClusters that are not accepted.
func ValidateClusterCount(sender Sender, pending Waiting, joinLimit int) error {
	waiting, refused := pending.tooMany(sender, joinLimit)
	if !sender.Joining || !refused {
		return nil
	}
	label, value := fleet.LabelRequestedBy, fleet.RequesterLabel(sender.Name)
	if sender.Credential != "" && pending.OfCredential >= joinLimit {
		label, value = fleet.LabelRequestedWith, fleet.RequesterLabel(sender.Credential)
	}
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q has asked for %d clusters that nobody has accepted, and may have no more; "+
		"%s. Accept or delete some: kubectl get managedclusters -l %s=%s", managedClusterResource, sender.Name, waiting, joinLimitHint, label,
		value))
}

// validateClusterSize limits what agents and joining agents write of a ManagedCluster to mostClusterBytes.
func validateClusterSize(cluster, old *clusterv1.ManagedCluster, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	type written struct {
		Annotations   map[string]string
		ClientConfigs []clusterv1.ClientConfig
	}
	now, before := written{cluster.Annotations, cluster.Spec.ManagedClusterClientConfigs}, written{}
	if old != nil {
		before = written{old.Annotations, old.Spec.ManagedClusterClientConfigs}
	}
	return limitGrowth(now, before, mostClusterBytes, fmt.Sprintf("ManagedCluster %q, its annotations and spec.managedClusterClientConfigs,",
		cluster.Name), nil)
}

// ValidateManagedClusterStatus limits what an agent writes to the status of its cluster to mostClusterStatusBytes: every client that
// lists clusters reads it.
//
// The entries of status.managedNamespaces are the hub's, of any number, with the agent's conditions in each. An entry that the hub has
// not made, or with conditions beyond mostNamespaceBytes, counts as written by the agent.
func ValidateManagedClusterStatus(cluster, old *unstructured.Unstructured, sender Sender) error {
	if !sender.stranger() && !sender.actsFor(cluster.GetName()) {
		return nil
	}
	status := maps.Clone(statusOf(cluster))
	if entries, ok := status[managedNamespaces].([]any); ok {
		ofHub, _ := statusOf(old)[managedNamespaces].([]any)
		status[managedNamespaces] = slices.DeleteFunc(slices.Clone(entries), func(entry any) bool { return answers(entry, ofHub) })
	}
	return limitSize(status, mostClusterStatusBytes, fmt.Sprintf("ManagedCluster %q", cluster.GetName()), field.NewPath("status"))
}

const managedNamespaces = "managedNamespaces"

// answers reports whether an entry of status.managedNamespaces is the hub's, with conditions of the usual size.
func answers(entry any, ofHub []any) bool {
	requested, conditions := splitEntry(entry)
	known := slices.ContainsFunc(ofHub, func(one any) bool {
		known, _ := splitEntry(one)
		return reflect.DeepEqual(requested, known)
	})
	return known && limitSize(conditions, mostNamespaceBytes, "", nil) == nil
}

// splitEntry separates the hub's part of an entry from the agent's conditions.
func splitEntry(entry any) (requested map[string]any, conditions any) {
	fields, _ := entry.(map[string]any)
	return without(fields, "conditions", nil), fields["conditions"]
}

// validateAddOnStatusSize limits what an agent writes to the status of an add-on to mostAddOnStatusBytes. It may not write the rest of
// the status.
func validateAddOnStatusSize(addOn, old *unstructured.Unstructured, sender Sender) error {
	if !sender.actsFor(addOn.GetNamespace()) {
		return nil
	}
	what, path := fmt.Sprintf("ManagedClusterAddOn %s/%s", addOn.GetNamespace(), addOn.GetName()), field.NewPath("status", "conditions")
	return limitGrowth(statusOf(addOn)["conditions"], statusOf(old)["conditions"], mostAddOnStatusBytes, what, path)
}

// ValidateManifestWorkStatus limits what an agent writes to the status of a work to mostWorkStatusBytes, and as much for each manifest:
// about ten conditions with long messages. A work that requests texts, by jsonPaths or by conditionRules, has no limit except that of
// the API, because such texts are as long as those in the objects.
func ValidateManifestWorkStatus(work, old *unstructured.Unstructured, sender Sender) error {
	if !sender.actsFor(work.GetNamespace()) || requestsTexts(work) {
		return nil
	}
	manifests, _, _ := unstructured.NestedFieldNoCopy(work.Object, "spec", "workload", "manifests")
	list, _ := manifests.([]any)
	what := fmt.Sprintf("ManifestWork %s/%s with %d manifests", work.GetNamespace(), work.GetName(), len(list))
	return limitGrowth(statusOf(work), statusOf(old), mostWorkStatusBytes*(1+len(list)), what, field.NewPath("status"))
}

// requestsTexts reports whether the configs of a work's manifests request texts from the agent.
func requestsTexts(work *unstructured.Unstructured) bool {
	value, _, _ := unstructured.NestedFieldNoCopy(work.Object, "spec", "manifestConfigs")
	configs, _ := value.([]any)
	return slices.ContainsFunc(configs, func(one any) bool {
		config, _ := one.(map[string]any)
		if conditions, _ := config["conditionRules"].([]any); len(conditions) > 0 {
			return true
		}
		feedback, _ := config["feedbackRules"].([]any)
		return slices.ContainsFunc(feedback, func(one any) bool {
			rule, _ := one.(map[string]any)
			return rule["type"] == string(workv1.JSONPathsType)
		})
	})
}

// ValidateLease limits the Leases of agents to mostLeaseBytes, and keeps agents from holding them, and with them their namespace, by
// finalizers.
func ValidateLease(lease, old metav1.Object, sender Sender) error {
	if !sender.actsFor(lease.GetNamespace()) {
		return nil
	}
	if err := validateHold(lease, old, coordinationv1.Resource("leases"), sender); err != nil {
		return err
	}
	return limitGrowth(lease, old, mostLeaseBytes, fmt.Sprintf("Lease %s/%s", lease.GetNamespace(), lease.GetName()), nil)
}

// ValidateManagedFields bounds metadata.managedFields. The server writes it, but starts from what is sent. An update that adds nothing
// is not checked. It fails with 413.
func ValidateManagedFields(object, old metav1.Object, resource string, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	size := managedBytes(object)
	if size <= mostManagedBytes || old != nil && size <= managedBytes(old) {
		return nil
	}
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s %q: metadata.managedFields takes %d bytes; agents and those who join may write %d at most",
		resource, object.GetName(), size, mostManagedBytes))
}

func managedBytes(object metav1.Object) (size int) {
	for _, entry := range object.GetManagedFields() {
		size += len(entry.Manager) + len(entry.Subresource) + len(entry.APIVersion)
		if entry.FieldsV1 != nil {
			size += len(entry.FieldsV1.GetRawBytes())
		}
	}
	return size
}

// ValidateEvent does for the events of agents what ValidateLease does for their Leases, with mostEventBytes.
func ValidateEvent(event, old metav1.Object, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	if err := validateHold(event, old, corev1.Resource("events"), sender); err != nil {
		return err
	}
	return limitSize(event, mostEventBytes, fmt.Sprintf("event %s/%s", event.GetNamespace(), event.GetName()), nil)
}

// TooManyEvents returns the error for an event of an agent that has sent many in a short time. Event recorders drop events that are
// refused.
func TooManyEvents(sender Sender) error {
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q, an agent of cluster %s, sends more events than the hub keeps of a cluster; this "+
		"one is dropped",
		corev1.Resource("events"), sender.Name, strings.Join(sender.Clusters, " ")))
}
