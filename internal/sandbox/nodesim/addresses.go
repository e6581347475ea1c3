package nodesim

import (
	"fmt"
	"net/netip"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// MaxNodes is how many nodes the pod network has room for.
const MaxNodes = 64

// The pod network is 10.244.0.0/16, a /22 (1,022 pods) for each node.
const (
	podBits     = 10
	podsPerNode = 1<<podBits - 2
)

// podCIDR is the pod network of the i-th node, counted from 0.
func podCIDR(i int) netip.Prefix {
	return netip.PrefixFrom(ipv4(10<<24|244<<16|i<<podBits), 32-podBits)
}

// hostIP is the address of the i-th node, counted from 0. Nothing listens there.
func hostIP(i int) netip.Addr {
	return ipv4(172<<24 | 18<<16 | i + 2)
}

func ipv4(v int) netip.Addr {
	return netip.AddrFrom4([4]byte{byte(v >> 24 & 0xff), byte(v >> 16 & 0xff), byte(v >> 8 & 0xff), byte(v & 0xff)})
}

// addresses gives out pod IPs, each to one pod of a node at a time.
type addresses struct {
	mu    sync.Mutex
	nodes map[string]*nodeAddresses
}

type nodeAddresses struct {
	byPod map[types.UID]netip.Addr
	used  map[netip.Addr]types.UID
	last  netip.Addr
}

func newAddresses() *addresses { return &addresses{nodes: map[string]*nodeAddresses{}} }

func (a *addresses) of(node string) *nodeAddresses {
	n, ok := a.nodes[node]
	if !ok {
		n = &nodeAddresses{byPod: map[types.UID]netip.Addr{}, used: map[netip.Addr]types.UID{}}
		a.nodes[node] = n
	}
	return n
}

// reserve notes that pod has ip, unless another pod has it.
func (a *addresses) reserve(node string, pod types.UID, ip string) {
	addr, err := netip.ParseAddr(ip)
	if err != nil {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.of(node)
	if _, taken := n.used[addr]; !taken {
		n.byPod[pod], n.used[addr] = addr, pod
	}
}

// assign returns the address of pod in network, choosing one if it has none.
// It goes round the network, so that an address is not reused at once.
func (a *addresses) assign(node string, network netip.Prefix, pod types.UID) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.of(node)
	if addr, ok := n.byPod[pod]; ok {
		return addr.String(), nil
	}
	if !n.last.IsValid() {
		n.last = network.Addr()
	}
	for range podsPerNode + 1 {
		n.last = n.last.Next()
		if !network.Contains(n.last) || !network.Contains(n.last.Next()) {
			n.last = network.Addr().Next() // past the end: neither broadcast nor network address
		}
		if _, taken := n.used[n.last]; !taken {
			n.byPod[pod], n.used[n.last] = n.last, pod
			return n.last.String(), nil
		}
	}
	return "", fmt.Errorf("no free pod IP on node %s: all %d of %s are in use", node, podsPerNode, network)
}

// release makes the address of pod free.
func (a *addresses) release(node string, pod types.UID) {
	a.mu.Lock()
	defer a.mu.Unlock()
	n := a.of(node)
	if addr, ok := n.byPod[pod]; ok {
		delete(n.used, addr)
		delete(n.byPod, pod)
	}
}
