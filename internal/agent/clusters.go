package agent

import (
	"errors"
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/capstan-io/capstan/internal/agent/hubaccess"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
)

// kubeconfig loads a cluster's client configuration. The API server's priority and fairness is the throttle, not the client.
func kubeconfig(file, flag string) (*rest.Config, error) {
	config, err := clientcmd.BuildConfigFromFlags("", file)
	if err != nil {
		if file == "" {
			return nil, fmt.Errorf("the agent does not run in a cluster, so it has to be told which one to manage: set %s: %w", flag, err)
		}
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	config.QPS = -1
	config.UserAgent = fleet.AgentUserAgent
	return config, nil
}

func managedConfig(o *Options) (*rest.Config, error) {
	if o.ManagedCluster != nil {
		return o.ManagedCluster, nil
	}
	return kubeconfig(o.SpokeKubeconfig, "--spoke-kubeconfig")
}

// managementConfig is of the cluster that the agent runs in; outside of any, that is the managed one.
func managementConfig(o *Options, managed *rest.Config) (*rest.Config, error) {
	if o.Kubeconfig != "" {
		return kubeconfig(o.Kubeconfig, "--kubeconfig")
	}
	inCluster, err := rest.InClusterConfig()
	if errors.Is(err, rest.ErrNotInCluster) {
		return managed, nil
	}
	if err != nil {
		return nil, fmt.Errorf("use the service account of the pod: %w", err)
	}
	inCluster.QPS = -1
	inCluster.UserAgent = fleet.AgentUserAgent
	return inCluster, nil
}

// isOwnCluster reports whether the agent runs in a pod of the managed cluster, and not in one of a cluster that hosts it, whose services
// have the same names.
func isOwnCluster(managed *rest.Config) bool {
	own, err := rest.InClusterConfig()
	return err == nil && own.Host == managed.Host
}

func newStore(o *Options, access *hubaccess.Access, management *rest.Config) (*hubkubeconfig.Store, error) {
	store := &hubkubeconfig.Store{Dir: o.HubKubeconfigDir, Access: access}
	if o.HubKubeconfigSecret == "" {
		return store, nil
	}
	c, err := client.New(management, client.Options{Scheme: managedScheme()})
	if err != nil {
		return nil, fmt.Errorf("reach the cluster of Secret %s/%s: %w", o.Namespace, o.HubKubeconfigSecret, err)
	}
	store.Client = c
	store.Secret = client.ObjectKey{Namespace: o.Namespace, Name: o.HubKubeconfigSecret}
	return store, nil
}
