package node

import (
	"bytes"
	"embed"
	"os"
	"path/filepath"
	"text/template"
)

// PauseImage is the image of the container that holds the namespaces of a pod. It has to be imported before the first pod starts.
const PauseImage = "localhost/pause:latest"

// files is where the node's programs find its directory.
const files = "/run/capstan-cluster"

// HyperkubePath is where programs and pods on the node find that of Kubernetes.
const HyperkubePath = "/run/hyperkube"

const containerdSocket = "/run/containerd/containerd.sock"

// networkPlugins is where Debian has the plugins of the Container Network Interface.
const networkPlugins = "/usr/lib/cni"

//go:embed config
var configFiles embed.FS

// registries is the directory of the node that says how registries are reached.
const registries = "registries"

// RegistryConfig is the path of the file that says how containerd reaches a registry, by the host in the names of images: hosts.toml, which
// is read at each pull.
func (n *Node) RegistryConfig(host string) string { return n.Path(registries, host, "hosts.toml") }

// directories that a node begins with. The node has its own var and run, so that all programs use their usual paths.
var directories = []string{
	"pki", "cni", "log", "sysctl", "run", registries,
	"var/cache", "var/lib/cni", "var/lib/containerd", "var/lib/kubelet", "var/log/pods", "var/tmp",
}

// configuration is what the templates of configuration files know.
type configuration struct{ *Node }

func (configuration) Files() string            { return files }
func (configuration) ContainerdSocket() string { return containerdSocket }
func (configuration) NetworkPlugins() string   { return networkPlugins }
func (configuration) PauseImage() string       { return PauseImage }
func (configuration) Registries() string       { return in(registries) }

// writeFiles lays out the directory of the node.
func (n *Node) writeFiles() error {
	for _, directory := range directories {
		if err := os.MkdirAll(n.Path(directory), 0o755); err != nil {
			return err
		}
	}
	templates, err := template.ParseFS(configFiles, "config/*")
	if err != nil {
		return err
	}
	for _, t := range templates.Templates() {
		var content bytes.Buffer
		if err := t.Execute(&content, configuration{n}); err != nil {
			return err
		}
		path := n.Path(t.Name())
		if filepath.Ext(path) == ".conflist" {
			path = n.Path("cni", t.Name())
		}
		if err := os.WriteFile(path, content.Bytes(), 0o644); err != nil {
			return err
		}
	}
	if err := n.writeCredentials(); err != nil {
		return err
	}
	if n.HasControlPlane() {
		if err := n.giveToControlPlane(); err != nil {
			return err
		}
	}
	return n.describe()
}

// giveToControlPlane lets the control plane read its keys and the kubeconfig, and nobody else.
func (n *Node) giveToControlPlane() error {
	own, err := filepath.Glob(n.Path("pki", "*"))
	if err != nil {
		return err
	}
	for _, path := range append(own, n.Path("controller-manager.kubeconfig")) {
		if err := os.Chown(path, int(n.controlPlaneUser()), -1); err != nil {
			return err
		}
	}
	return os.Chmod(n.Dir(), 0o711)
}
