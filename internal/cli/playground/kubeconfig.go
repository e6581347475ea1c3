package playground

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// publish puts a component's kubeconfig into that of the playground as a context of the given name, which replaces one of
// the same name. What a person has put there besides stays.
func (h Home) publish(name, file string) error {
	part, err := loadSelfContained(file)
	if err != nil {
		return err
	}
	context := part.Contexts[part.CurrentContext]
	if context == nil || part.Clusters[context.Cluster] == nil || part.AuthInfos[context.AuthInfo] == nil {
		return fmt.Errorf("kubeconfig %s has no usable current context", file)
	}
	merged, err := clientcmd.LoadFromFile(h.Kubeconfig())
	if err != nil {
		merged = clientcmdapi.NewConfig() // missing, or broken and created again
	}
	merged.Clusters[name] = part.Clusters[context.Cluster]
	merged.AuthInfos[name] = part.AuthInfos[context.AuthInfo]
	merged.Contexts[name] = &clientcmdapi.Context{Cluster: name, AuthInfo: name}
	if merged.Contexts[merged.CurrentContext] == nil {
		merged.CurrentContext = hubapi.PlaygroundContext
	}
	content, err := clientcmd.Write(*merged)
	if err != nil {
		return err
	}
	return WriteSecretFile(h.Kubeconfig(), content)
}

// loadSelfContained reads a kubeconfig and puts into it what it only refers to.
func loadSelfContained(file string) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, fmt.Errorf("kubeconfig %s: %w", file, err)
	}
	return config, nil
}
