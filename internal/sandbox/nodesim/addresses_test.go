package nodesim

import (
	"fmt"
	"net/netip"
	"testing"

	"k8s.io/apimachinery/pkg/types"
)

// Pod networks of nodes do not overlap, and every address a node gives out is its own.
func TestAddresses(t *testing.T) {
	t.Parallel()
	for i := 1; i < MaxNodes; i++ {
		if podCIDR(i).Overlaps(podCIDR(i - 1)) {
			t.Fatalf("networks of nodes %d and %d overlap: %s, %s", i-1, i, podCIDR(i-1), podCIDR(i))
		}
	}
	if !netip.MustParsePrefix("10.244.0.0/16").Contains(podCIDR(MaxNodes - 1).Addr()) {
		t.Errorf("the last network, %s, is outside of the pod network", podCIDR(MaxNodes-1))
	}

	a, network, seen := newAddresses(), podCIDR(1), map[string]bool{}
	for i := range podsPerNode {
		ip, err := a.assign("node", network, types.UID(fmt.Sprint(i)))
		if err != nil {
			t.Fatal(err)
		}
		if seen[ip] || !network.Contains(netip.MustParseAddr(ip)) {
			t.Fatalf("pod %d got %s: taken, or not in %s", i, ip, network)
		}
		seen[ip] = true
	}
	if ip, err := a.assign("node", network, "one too many"); err == nil {
		t.Errorf("a full node gave out %s", ip)
	}
	a.release("node", "500")
	if _, err := a.assign("node", network, "one too many"); err != nil {
		t.Errorf("after a release: %v", err)
	}
}

// A pod keeps its address, and an address learned from the API goes to no other pod.
func TestAddressesAreKept(t *testing.T) {
	t.Parallel()
	a, network := newAddresses(), podCIDR(0)
	a.reserve("node", "old", "10.244.0.1")
	first, err := a.assign("node", network, "new")
	if err != nil {
		t.Fatal(err)
	}
	if first == "10.244.0.1" {
		t.Error("the address of a running pod was given out again")
	}
	for pod, want := range map[types.UID]string{"old": "10.244.0.1", "new": first} {
		if got, err := a.assign("node", network, pod); err != nil || got != want {
			t.Errorf("pod %s: got %s, error %v; want %s", pod, got, err, want)
		}
	}
	// An address just released is not the next to be used.
	a.release("node", "new")
	if next, err := a.assign("node", network, "next"); err != nil || next == first {
		t.Errorf("next pod: got %s, error %v; want another than %s", next, err, first)
	}
}
