// Package node runs the nodes of Kubernetes clusters on this machine, without Docker: containerd, the kubelet and kube-proxy, and on the
// first node of a cluster etcd and the control plane, as processes in namespaces of their own. It needs root.
//
// A node has its own network, mounts, processes, hostname and IPC. So all nodes use the same ports and paths, none changes the firewall or
// the settings of the machine, and killing the first process of a node ends everything in it. What is left then (a directory, cgroups,
// a network link) is removed by Stop, or by the next Allocate if the process that owned the node was killed.
package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// Root has a directory for each node of this machine.
const Root = "/var/lib/capstan-clusters"

// HostIP is the address of this machine that nodes and their pods reach it at.
const HostIP = "10.250.0.1"

// Node is one of a cluster. Its index decides its addresses.
type Node struct {
	Name  string
	Index int
	// Cluster has the indexes of all nodes of the cluster. The first one has the control plane.
	Cluster []int
	// Detached nodes run until they are stopped; others end with the process that allocated them.
	Detached bool
	// Hyperkube is the path of the program that has those of Kubernetes.
	Hyperkube string

	owner    *os.File // locked as long as the node is in use
	lifeline *os.File // ends with this process, and tells the node so
	process  *os.Process
	ended    chan struct{}
}

// Dir has all files of the node.
func (n *Node) Dir() string { return filepath.Join(Root, strconv.Itoa(n.Index)) }

// Path is that of a file of the node.
func (n *Node) Path(elements ...string) string {
	return filepath.Join(append([]string{n.Dir()}, elements...)...)
}

// Kubeconfig is the path of an administrator's kubeconfig.
func (n *Node) Kubeconfig() string { return n.Path("admin.kubeconfig") }

// IP is the address of the node, for this machine and for the pods of all nodes.
func (n *Node) IP() string { return fmt.Sprintf("10.250.0.%d", 10+n.Index) }

// HasControlPlane tells whether the node is the first one of its cluster.
func (n *Node) HasControlPlane() bool { return n.Index == n.Cluster[0] }

// controlPlaneNode has the addresses and the directory of the first node of the cluster.
func (n *Node) controlPlaneNode() *Node { return &Node{Index: n.Cluster[0]} }

// URL is that of the API server, for this machine and for the pods of all nodes.
func (n *Node) URL() string { return "https://" + n.controlPlaneNode().IP() + ":6443" }

// PodCIDR has the addresses of the node's pods.
func (n *Node) PodCIDR() string { return fmt.Sprintf("10.251.%d.0/24", n.Index) }

// allPods has the addresses of the pods of all nodes.
const allPods = "10.251.0.0/16"

// ServiceCIDR has the addresses of services.
func (n *Node) ServiceCIDR() string { return fmt.Sprintf("10.252.%d.0/24", n.Cluster[0]) }

// APIServerServiceIP is the address of the service "kubernetes".
func (n *Node) APIServerServiceIP() string { return fmt.Sprintf("10.252.%d.1", n.Cluster[0]) }

// DNSIP is the address of the service "kube-dns".
func (n *Node) DNSIP() string { return fmt.Sprintf("10.252.%d.10", n.Cluster[0]) }

// CgroupRoot is the cgroup of all pods of the node.
func (n *Node) CgroupRoot() string { return fmt.Sprintf("/capstan-cluster-%d", n.Index) }

func (n *Node) link() string { return fmt.Sprintf("capstan%d", n.Index) }

// description is the file that says what the node is.
func (n *Node) description() string { return n.Path("node.json") }

func (n *Node) describe() error {
	content, err := json.Marshal(n)
	if err != nil {
		return err
	}
	return os.WriteFile(n.description(), content, 0o600)
}

func load(dir string) (*Node, error) {
	content, err := os.ReadFile(filepath.Join(dir, "node.json"))
	if err != nil {
		return nil, err
	}
	var n Node
	return &n, json.Unmarshal(content, &n)
}

// room is how many nodes run on this machine at a time, whichever processes they are for. A node, with what usually runs on it, takes up to
// twelve of the 128 inotify instances that root has by default. With more nodes, two cores take minutes to start one.
const room = 8

// retryInterval is how often Allocate looks whether there is room.
const retryInterval = 200 * time.Millisecond

// Allocate gives the nodes of clusters, by their names, indexes that no others have, as soon as there is room for all of them. It first
// removes the nodes whose owners were killed.
func Allocate(ctx context.Context, clusters ...[]string) (nodes [][]*Node, err error) {
	if all := slices.Concat(clusters...); len(all) > room {
		return nil, fmt.Errorf("%d nodes do not run on one machine: it has room for %d", len(all), room)
	}
	for {
		nodes, err := allocate(clusters)
		if !errors.Is(err, errNoRoom) {
			return nodes, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, ctx.Err())
		case <-time.After(retryInterval):
		}
	}
}

var errNoRoom = fmt.Errorf("this machine has room for %d nodes; see %s for those that run", room, Root)

func allocate(clusters [][]string) ([][]*Node, error) {
	unlock, err := lockMachine()
	if err != nil {
		return nil, err
	}
	defer unlock()
	if err := removeAbandoned(); err != nil {
		return nil, err
	}
	indexes, err := freeIndexes()
	if err != nil {
		return nil, err
	}
	if len(indexes) < len(slices.Concat(clusters...)) {
		return nil, errNoRoom
	}
	nodes := make([][]*Node, len(clusters))
	for i, names := range clusters {
		own := indexes[:len(names)]
		indexes = indexes[len(names):]
		for j, name := range names {
			n := &Node{Name: name, Index: own[j], Cluster: own}
			if err := n.take(); err != nil {
				return nil, err
			}
			nodes[i] = append(nodes[i], n)
		}
	}
	return nodes, nil
}

// take makes the directory of the node, and locks it.
func (n *Node) take() (err error) {
	if err := os.Mkdir(n.Dir(), 0o700); err != nil {
		return err
	}
	n.owner, err = lock(n.Path("owner.lock"), syscall.LOCK_EX|syscall.LOCK_NB)
	return err
}

// freeIndexes are those of room that no node has.
func freeIndexes() ([]int, error) {
	var free []int
	for index := 1; index <= room; index++ {
		switch _, err := os.Stat((&Node{Index: index}).Dir()); {
		case errors.Is(err, os.ErrNotExist):
			free = append(free, index)
		case err != nil:
			return nil, err
		}
	}
	return free, nil
}

// List has the nodes of this machine that are in use.
func List() ([]*Node, error) {
	entries, err := os.ReadDir(Root)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	var nodes []*Node
	for _, entry := range entries {
		n, err := load(filepath.Join(Root, entry.Name()))
		if err != nil { // it is being made or removed
			continue
		}
		if owner, err := lock(n.Path("owner.lock"), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
			owner.Close()
			continue // abandoned
		}
		nodes = append(nodes, n)
	}
	return nodes, nil
}

func removeAbandoned() error {
	entries, err := os.ReadDir(Root)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		index, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		n := &Node{Index: index}
		n.owner, err = lock(n.Path("owner.lock"), syscall.LOCK_EX|syscall.LOCK_NB)
		if errors.Is(err, syscall.EWOULDBLOCK) {
			continue
		}
		if err != nil {
			return err
		}
		if err := n.remove(); err != nil {
			return fmt.Errorf("remove what was left of a node in %s: %w", n.Dir(), err)
		}
	}
	return nil
}

// lockMachine keeps others from adding and removing nodes and links. What is locked is the directory of all nodes, which goes with the
// last one.
func lockMachine() (unlock func(), err error) {
	for {
		if err := os.MkdirAll(Root, 0o700); err != nil {
			return nil, err
		}
		file, err := os.Open(Root)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX); err != nil {
			return nil, errors.Join(fmt.Errorf("lock %s: %w", Root, err), file.Close())
		}
		if isAt(file, Root) {
			return func() { file.Close() }, nil
		}
		file.Close() // it was removed while this process waited
	}
}

// isAt tells whether the path still leads to the file.
func isAt(file *os.File, path string) bool {
	opened, err := file.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(path)
	return err == nil && os.SameFile(opened, found)
}

// lock opens a file and locks it until it is closed.
func lock(path string, how int) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), how); err != nil {
		file.Close()
		return nil, &os.PathError{Op: "lock", Path: path, Err: err}
	}
	return file, nil
}
