package node

import "path"

// program is what runs on a node.
type program struct {
	name string
	args []string // the first is the path
	user uint32   // as whom it runs; 0 is root
}

// controlPlaneUser is the user of the API server and the controller manager, another one on each node. They follow a dozen files, each with
// an inotify instance of its own, and a user has 128 of these by default: that is enough for what has to be root's on all nodes.
func (n *Node) controlPlaneUser() uint32 { return 64000 + uint32(n.Index) }

// in is the path of a file of the node, as its programs see it.
func in(elements ...string) string { return path.Join(append([]string{files}, elements...)...) }

func kubernetes(name string, flags ...string) program {
	return program{name: name, args: append([]string{HyperkubePath, name}, flags...)}
}

// controlPlane is a program that needs no rights on the machine.
func (n *Node) controlPlane(name string, flags ...string) program {
	p := kubernetes(name, flags...)
	p.user = n.controlPlaneUser()
	return p
}

// foundation is what the others need to start.
func (n *Node) foundation() []program {
	containerd := program{name: "containerd", args: []string{"containerd", "--config", in("containerd.toml")}}
	if !n.HasControlPlane() {
		return []program{containerd}
	}
	return append(n.apiServer(), containerd)
}

func (n *Node) apiServer() []program {
	return []program{
		kubernetes("etcd",
			"--name="+n.Name,
			"--data-dir=/var/lib/etcd",
			"--unsafe-no-fsync",
			"--listen-client-urls=http://127.0.0.1:2379",
			"--advertise-client-urls=http://127.0.0.1:2379",
			"--listen-peer-urls=http://127.0.0.1:2380",
			"--initial-advertise-peer-urls=http://127.0.0.1:2380",
			"--initial-cluster="+n.Name+"=http://127.0.0.1:2380",
		),
		n.controlPlane("kube-apiserver",
			"--etcd-servers=http://127.0.0.1:2379",
			"--bind-address=0.0.0.0",
			"--advertise-address="+n.IP(),
			"--secure-port=6443",
			"--service-cluster-ip-range="+n.ServiceCIDR(),
			"--allow-privileged=true",
			"--authorization-mode=Node,RBAC",
			"--enable-admission-plugins=NodeRestriction",
			"--enable-bootstrap-token-auth=true",
			"--client-ca-file="+in("pki/ca.crt"),
			"--tls-cert-file="+in("pki/apiserver.crt"),
			"--tls-private-key-file="+in("pki/apiserver.key"),
			"--kubelet-certificate-authority="+in("pki/ca.crt"),
			"--kubelet-client-certificate="+in("pki/apiserver-kubelet.crt"),
			"--kubelet-client-key="+in("pki/apiserver-kubelet.key"),
			"--kubelet-preferred-address-types=InternalIP",
			"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
			"--service-account-key-file="+in("pki/sa.pub"),
			"--service-account-signing-key-file="+in("pki/sa.key"),
			"--requestheader-client-ca-file="+in("pki/front-proxy-ca.crt"),
			"--requestheader-allowed-names=front-proxy-client",
			"--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group",
			"--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--proxy-client-cert-file="+in("pki/front-proxy.crt"),
			"--proxy-client-key-file="+in("pki/front-proxy.key"),
		),
	}
}

// clients are the programs that need the API server.
func (n *Node) clients() []program {
	onEachNode := []program{
		kubernetes("kubelet",
			"--config="+in("kubelet.yaml"),
			"--kubeconfig="+in("kubelet.kubeconfig"),
			"--hostname-override="+n.Name,
			"--node-ip="+n.IP(),
		),
		kubernetes("kube-network-policies",
			"--kubeconfig="+in("network-policies.kubeconfig"),
			"--hostname-override="+n.Name,
		),
		kubernetes("kube-proxy",
			"--config="+in("kube-proxy.yaml"),
			"--hostname-override="+n.Name,
		),
	}
	if !n.HasControlPlane() {
		return onEachNode
	}
	return append(n.controllers(), onEachNode...)
}

func (n *Node) controllers() []program {
	controllers, scheduler := in("controller-manager.kubeconfig"), in("scheduler.kubeconfig")
	return []program{
		n.controlPlane("kube-controller-manager",
			"--kubeconfig="+controllers,
			"--authentication-kubeconfig="+controllers,
			"--authorization-kubeconfig="+controllers,
			"--controllers=*,bootstrapsigner,tokencleaner",
			"--leader-elect=false",
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+in("pki/sa.key"),
			"--root-ca-file="+in("pki/ca.crt"),
			"--cluster-signing-cert-file="+in("pki/ca.crt"),
			"--cluster-signing-key-file="+in("pki/ca.key"),
			"--requestheader-client-ca-file="+in("pki/front-proxy-ca.crt"),
			"--bind-address=127.0.0.1",
			// With the defaults, the first service accounts come six seconds after the controllers have started.
			"--kube-api-qps=500",
			"--kube-api-burst=1000",
		),
		kubernetes("kube-scheduler",
			"--kubeconfig="+scheduler,
			"--authentication-kubeconfig="+scheduler,
			"--authorization-kubeconfig="+scheduler,
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
		),
	}
}
