package admission

import (
	"encoding/json"
	"fmt"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/fleet"
)

// What agents, and those who join, write is held in the memory of the hub and of whoever watches it. These are the most bytes that it may
// take as JSON: some ten times what agents write.
const (
	// mostRequestBytes is of a CertificateSigningRequest. One with an RSA key of 8192 bits takes 4 KiB.
	mostRequestBytes = 16 << 10
	// mostClusterBytes is of the metadata and the spec of a ManagedCluster: 40 certificates of authorities, for instance.
	mostClusterBytes = 64 << 10
	// mostClusterStatusBytes is of the status of a ManagedCluster, without what the hub tells there: 200 claims of the longest kind.
	mostClusterStatusBytes = 256 << 10
	// mostManagedBytes is of metadata.managedFields of any object, where long lists are one entry each.
	mostManagedBytes = 256 << 10
	// mostEventBytes is of an event, whose note has 1 KiB at most.
	mostEventBytes = 8 << 10
)

const (
	// DefaultJoinLimit is how much one bootstrap credential may ask for until somebody decides.
	DefaultJoinLimit = 1000
	// agentRequestLimit is how many undecided requests one agent may have. It stops by itself at ten, and at ten for each add-on.
	agentRequestLimit = 200
)

// stranger tells whether somebody's writes are limited.
func (s Sender) stranger() bool { return s.Joining || len(s.Clusters) > 0 }

// limitSize says by how much a stranger's object is too large. It fails with 413.
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
	return apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("%s takes %d bytes; agents and those who join may write %d at most", of, len(encoded), most))
}

// ValidateRequestCount keeps one sender from filling the hub with CertificateSigningRequests that nobody decides on. Undecided is how many of
// its requests wait already. It fails with 429.
func ValidateRequestCount(sender Sender, undecided, joinLimit int) error {
	limit, hint := agentRequestLimit, "the agents of a cluster have a few"
	if sender.Joining {
		limit, hint = joinLimit, "--join-limit of the hub is how many one bootstrap credential may have"
	}
	if !sender.stranger() || undecided < limit {
		return nil
	}
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q has %d requests that nobody has decided on, and may have no more; %s. "+
		"Approve, deny or delete some, or wait: they expire after a day", certificatesv1.Resource("certificatesigningrequests"), sender.Name, undecided, hint))
}

// ValidateClusterCount does the same for ManagedClusters that nobody has accepted.
func ValidateClusterCount(sender Sender, pending, joinLimit int) error {
	if !sender.Joining || pending < joinLimit {
		return nil
	}
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q has asked for %d clusters that nobody has accepted, and may have no more; "+
		"--join-limit of the hub is how many one bootstrap credential may have. Accept or delete some: kubectl get managedclusters -l %s=%s",
		managedClusterResource, sender.Name, pending, fleet.LabelRequestedBy, fleet.RequesterLabel(sender.Name)))
}

// validateClusterSize holds what strangers write of a ManagedCluster to mostClusterBytes. What an update of others has made larger stands in
// no agent's way while it does not add to it.
func validateClusterSize(cluster, old *clusterv1.ManagedCluster, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	type written struct {
		Annotations   map[string]string
		ClientConfigs []clusterv1.ClientConfig
	}
	now := written{cluster.Annotations, cluster.Spec.ManagedClusterClientConfigs}
	if old != nil {
		before, errBefore := json.Marshal(written{old.Annotations, old.Spec.ManagedClusterClientConfigs})
		after, err := json.Marshal(now)
		if err == nil && errBefore == nil && len(after) <= len(before) {
			return nil
		}
	}
	return limitSize(now, mostClusterBytes, fmt.Sprintf("ManagedCluster %q, its annotations and spec.managedClusterClientConfigs,", cluster.Name), nil)
}

// ValidateManagedClusterStatus holds what an agent says of its cluster to mostClusterStatusBytes: every client that lists clusters reads it.
func ValidateManagedClusterStatus(name string, status map[string]any, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	said := make(map[string]any, len(status))
	for part, value := range status {
		if part != "managedNamespaces" { // the hub's, with what the agent answers to each
			said[part] = value
		}
	}
	return limitSize(said, mostClusterStatusBytes, fmt.Sprintf("ManagedCluster %q", name), field.NewPath("status"))
}

// ValidateManagedFields bounds what says which fields of an object are whose. The server writes it, but takes over what is sent. What an update
// does not add to is not asked about. It fails with 413.
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

// ValidateEvent holds the events of agents to mostEventBytes.
func ValidateEvent(event metav1.Object, sender Sender) error {
	if !sender.stranger() {
		return nil
	}
	return limitSize(event, mostEventBytes, fmt.Sprintf("event %s/%s", event.GetNamespace(), event.GetName()), nil)
}

// TooManyEvents refuses an event of an agent that has sent many in a short time. Whoever records events drops those that are refused.
func TooManyEvents(sender Sender) error {
	return apierrors.NewTooManyRequestsError(fmt.Sprintf("%s: user %q, an agent of cluster %s, sends more events than the hub keeps of a cluster; this one is dropped",
		corev1.Resource("events"), sender.Name, strings.Join(sender.Clusters, " ")))
}
