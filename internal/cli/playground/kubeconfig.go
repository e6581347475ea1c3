package playground

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/capstan-io/capstan/internal/cli/hubapi"
)

// publish puts a component's kubeconfig into that of the playground as a context of the given name, which replaces one of
// the same name. What a person has put there besides stays.
func (h Home) publish(name, file string, report Reporter) error {
	part, err := loadSelfContained(file)
	if err != nil {
		return err
	}
	context := part.Contexts[part.CurrentContext]
	if context == nil || part.Clusters[context.Cluster] == nil || part.AuthInfos[context.AuthInfo] == nil {
		return fmt.Errorf("kubeconfig %s has no usable current context", file)
	}
	merged, err := h.loadKubeconfig(report)
	if err != nil {
		return err
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

// loadKubeconfig reads the kubeconfig of the playground. One that is missing is empty, and so is a broken one, which is kept under another
// name: a person may have put something there.
func (h Home) loadKubeconfig(report Reporter) (*clientcmdapi.Config, error) {
	config, err := clientcmd.LoadFromFile(h.Kubeconfig())
	var unreadable *fs.PathError
	switch {
	case err == nil:
		return config, nil
	case errors.Is(err, fs.ErrNotExist):
		return clientcmdapi.NewConfig(), nil
	case errors.As(err, &unreadable):
		return nil, fmt.Errorf("read the kubeconfig of the playground: %w", err)
	}
	broken := h.Kubeconfig() + ".broken"
	if err := os.Rename(h.Kubeconfig(), broken); err != nil {
		return nil, err
	}
	report.Warn("kubeconfig", fmt.Sprintf("was no kubeconfig and is %s now, with what else was in it: %v", broken, err))
	return clientcmdapi.NewConfig(), nil
}

// published are the contexts that publish has made: by the state and, where that is lost, by the folders of the sandboxes.
func (h Home) published() []string {
	names := []string{hubapi.PlaygroundContext}
	state, _ := h.Load() // a broken one says nothing
	for _, cluster := range state.Clusters {
		names = append(names, cluster.Name)
	}
	folders, _ := os.ReadDir(h.clustersDir())
	for _, folder := range folders {
		if _, err := os.Stat(h.sandbox(ClusterState{Name: folder.Name()}).dir); err == nil {
			names = append(names, folder.Name())
		}
	}
	return names
}

// withdraw takes out of the kubeconfig what publish has put there as contexts of the given names, and contexts of a person that lead to the
// same clusters. What a person has put there besides stays; a file with nothing left is removed.
func (h Home) withdraw(names []string, report Reporter) error {
	config, err := h.loadKubeconfig(report)
	if err != nil {
		return err
	}
	for _, name := range names {
		delete(config.Clusters, name)
		delete(config.AuthInfos, name)
	}
	maps.DeleteFunc(config.Contexts, func(name string, context *clientcmdapi.Context) bool {
		return slices.Contains(names, name) || slices.Contains(names, context.Cluster)
	})
	if len(config.Contexts)+len(config.Clusters)+len(config.AuthInfos) == 0 {
		return removeAll(h.Kubeconfig())
	}
	if config.Contexts[config.CurrentContext] == nil {
		config.CurrentContext = ""
	}
	content, err := clientcmd.Write(*config)
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
