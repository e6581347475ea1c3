package nodesim

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"runtime"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/apimachinery/lease"
)

// LabelSimulated marks the nodes made here; its value is "true".
const LabelSimulated = "sandbox.capstan.io/simulated"

const (
	// A kubelet's figures: a lease of 40 s renewed every 10 s, and the status
	// reported again after 5 minutes without a change.
	leaseDuration = 40 * time.Second
	leaseRenewal  = 10 * time.Second
	heartbeat     = 5 * time.Minute
)

// node is what is fixed about one simulated node.
type node struct {
	name    string
	hostIP  string
	podCIDR netip.Prefix
}

func newNode(i int) node {
	return node{name: "node-" + strconv.Itoa(i+1), hostIP: hostIP(i).String(), podCIDR: podCIDR(i)}
}

// syncNode makes a node of ours exist and be Ready, and removes one that an
// earlier run with more nodes left behind.
func (s *Simulator) syncNode(ctx context.Context, name string) (time.Duration, error) {
	desired, ours := s.nodes[name]
	existing, err := s.nodeLister.Get(name)
	switch {
	case err != nil && !apierrors.IsNotFound(err):
		return 0, err
	case ours && err != nil:
		return heartbeat, s.register(ctx, desired)
	case ours:
		return s.reportNode(ctx, desired, existing)
	case err == nil && existing.Labels[LabelSimulated] == "true":
		return 0, s.removeNode(ctx, name)
	default:
		return 0, nil
	}
}

func (s *Simulator) register(ctx context.Context, n node) error {
	object := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: n.name,
			Labels: map[string]string{
				LabelSimulated:           "true",
				corev1.LabelHostname:     n.name,
				corev1.LabelOSStable:     "linux",
				corev1.LabelArchStable:   runtime.GOARCH,
				corev1.LabelInstanceType: "simulated",
			},
		},
		Spec: corev1.NodeSpec{PodCIDR: n.podCIDR.String(), PodCIDRs: []string{n.podCIDR.String()}},
	}
	object.Status = s.nodeStatus(n, object)
	_, err := s.client.CoreV1().Nodes().Create(ctx, object, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("register node %s: %w", n.name, err)
	}
	return nil
}

// reportNode writes the status of a node if it differs, or if the last report is
// a heartbeat old, and returns when the next is due.
func (s *Simulator) reportNode(ctx context.Context, n node, existing *corev1.Node) (time.Duration, error) {
	status := s.nodeStatus(n, existing)
	if equality.Semantic.DeepEqual(existing.Status, status) {
		return untilHeartbeat(existing, s.clock.Now()), nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": existing.UID},
		"status":   status,
	})
	if err != nil {
		return 0, fmt.Errorf("encode status of node %s: %w", n.name, err)
	}
	_, err = s.client.CoreV1().Nodes().Patch(ctx, n.name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	if err != nil {
		return 0, fmt.Errorf("report status of node %s: %w", n.name, err)
	}
	return heartbeat, nil
}

// nodeStatus lays what is simulated over what existing has, so that extended
// resources and conditions of others stay.
func (s *Simulator) nodeStatus(n node, existing *corev1.Node) corev1.NodeStatus {
	status := *existing.Status.DeepCopy()
	status.Capacity = withCapacity(status.Capacity)
	status.Allocatable = withCapacity(status.Allocatable)
	status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: n.hostIP},
		{Type: corev1.NodeHostName, Address: n.name},
	}
	status.NodeInfo = corev1.NodeSystemInfo{
		OperatingSystem:         "linux",
		Architecture:            runtime.GOARCH,
		OSImage:                 "Capstan sandbox (simulated, runs no containers)",
		ContainerRuntimeVersion: "simulated://0",
		KubeletVersion:          s.version,
	}
	for _, c := range nodeConditions {
		setNodeCondition(&status, c, s.now())
	}
	return status
}

// withCapacity sets what a node has in resources. It is much, so that what a user
// tries out fits.
func withCapacity(resources corev1.ResourceList) corev1.ResourceList {
	if resources == nil {
		resources = corev1.ResourceList{}
	}
	resources[corev1.ResourceCPU] = resource.MustParse("32")
	resources[corev1.ResourceMemory] = resource.MustParse("256Gi")
	resources[corev1.ResourceEphemeralStorage] = resource.MustParse("1Ti")
	resources[corev1.ResourcePods] = resource.MustParse("1000")
	return resources
}

var nodeConditions = []corev1.NodeCondition{
	{Type: corev1.NodeMemoryPressure, Status: corev1.ConditionFalse, Reason: "Simulated",
		Message: "the memory of a simulated node is not used up"},
	{Type: corev1.NodeDiskPressure, Status: corev1.ConditionFalse, Reason: "Simulated",
		Message: "the disk of a simulated node is not used up"},
	{Type: corev1.NodePIDPressure, Status: corev1.ConditionFalse, Reason: "Simulated", Message: "a simulated node runs no processes"},
	{Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "Simulated",
		Message: "simulated node: pods are reported as running, their containers do not execute"},
}

// setNodeCondition sets want, stamped now, keeping the stamps of an equal
// condition whose heartbeat is not due.
func setNodeCondition(status *corev1.NodeStatus, want corev1.NodeCondition, now metav1.Time) {
	want.LastHeartbeatTime, want.LastTransitionTime = now, now
	for i, had := range status.Conditions {
		if had.Type != want.Type {
			continue
		}
		if had.Status == want.Status {
			want.LastTransitionTime = had.LastTransitionTime
			if now.Sub(had.LastHeartbeatTime.Time) < heartbeat && had.Reason == want.Reason && had.Message == want.Message {
				want.LastHeartbeatTime = had.LastHeartbeatTime
			}
		}
		status.Conditions[i] = want
		return
	}
	status.Conditions = append(status.Conditions, want)
}

func untilHeartbeat(n *corev1.Node, now time.Time) time.Duration {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return max(c.LastHeartbeatTime.Add(heartbeat).Sub(now), time.Second)
		}
	}
	return heartbeat
}

// removeNode deletes a node. The pods on it follow as orphans.
func (s *Simulator) removeNode(ctx context.Context, name string) error {
	err := s.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("remove node %s: %w", name, err)
	}
	return nil
}

// renewLease keeps the heartbeat lease of n until ctx ends.
func (s *Simulator) renewLease(ctx context.Context, n node) {
	ownedByNode := func(l *coordinationv1.Lease) error {
		existing, err := s.nodeLister.Get(n.name)
		if err != nil || len(l.OwnerReferences) > 0 {
			return nil //nolint:nilerr // the owner is set at a later renewal
		}
		l.OwnerReferences = []metav1.OwnerReference{{
			APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Node", Name: n.name, UID: existing.UID,
		}}
		return nil
	}
	lease.NewController(s.clock, s.client, n.name, int32(leaseDuration/time.Second), nil, leaseRenewal,
		n.name, corev1.NamespaceNodeLease, ownedByNode).Run(ctx)
}
