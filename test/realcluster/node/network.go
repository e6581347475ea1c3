package node

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// bridge connects all nodes with each other and with this machine. Nothing is routed or translated on the machine.
const bridge = "capstan0"

// connect gives the node a link to the bridge, which it makes if this is the first node.
func (n *Node) connect() error {
	unlock, err := lockMachine()
	if err != nil {
		return err
	}
	defer unlock()
	if _, err := net.InterfaceByName(bridge); err != nil {
		if err := ip("link", "add", bridge, "type", "bridge"); err != nil {
			return err
		}
		if err := ip("address", "add", HostIP+"/24", "dev", bridge); err != nil {
			return err
		}
	}
	if err := ip("link", "set", bridge, "up"); err != nil {
		return err
	}
	pid := strconv.Itoa(n.process.Pid)
	if err := ip("link", "add", n.link(), "type", "veth", "peer", "name", "eth0", "netns", pid); err != nil {
		return err
	}
	return ip("link", "set", n.link(), "master", bridge, "up")
}

// disconnect removes the link of the node, and the bridge with the last link. The caller has locked the machine.
func (n *Node) disconnect() error {
	if _, err := net.InterfaceByName(n.link()); err == nil {
		if err := ip("link", "delete", n.link()); err != nil && !isGone(n.link()) {
			return err
		}
	}
	ports, err := os.ReadDir("/sys/class/net/" + bridge + "/brif")
	if err != nil || len(ports) > 0 {
		return nil //nolint:nilerr // there is no bridge
	}
	return ip("link", "delete", bridge)
}

// isGone tells whether a link went by itself, as it does with the namespace of the other end.
func isGone(link string) bool {
	_, err := net.InterfaceByName(link)
	return err != nil
}

// configureNetwork sets up the inside of the node's network.
func (n *Node) configureNetwork() error {
	for _, command := range [][]string{
		{"link", "set", "lo", "up"},
		{"address", "add", n.IP() + "/24", "dev", "eth0"},
		{"link", "set", "eth0", "up"},
		{"route", "add", "default", "via", HostIP},
	} {
		if err := ip(command...); err != nil {
			return err
		}
	}
	if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0o600); err != nil {
		return err
	}
	if err := n.routePods(); err != nil {
		return err
	}
	return filterBridges()
}

// routePods lets the pods of all nodes of the cluster reach each other at their own addresses, which network policies go by. For all else
// that they reach outside of the node, they have the node's address.
func (n *Node) routePods() error {
	for _, index := range n.Cluster {
		if other := (&Node{Index: index}); index != n.Index {
			if err := ip("route", "add", other.PodCIDR(), "via", other.IP()); err != nil {
				return err
			}
		}
	}
	return run("iptables", "--table", "nat", "--append", "POSTROUTING", "--source", n.PodCIDR(), "!", "--destination", allPods,
		"--jump", "MASQUERADE")
}

// filterBridges has packets between the pods of the node pass the rules of services and of network policies.
func filterBridges() error {
	const setting = "/proc/sys/net/bridge/bridge-nf-call-iptables"
	if _, err := os.Stat(setting); errors.Is(err, os.ErrNotExist) {
		if err := run("modprobe", "br_netfilter"); err != nil {
			return err
		}
	}
	return os.WriteFile(setting, []byte("1"), 0o600)
}

func ip(args ...string) error { return run("ip", args...) }

func run(name string, args ...string) error {
	var stderr bytes.Buffer
	command := exec.Command(name, args...)
	command.Stderr = &stderr
	if err := command.Run(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return nil
}
