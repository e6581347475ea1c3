package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	clusterv1 "github.com/capstan-io/capstan/api/cluster/v1"
	"github.com/capstan-io/capstan/internal/agent/registration/hubkubeconfig"
	"github.com/capstan-io/capstan/internal/agent/registration/monitor"
	"github.com/capstan-io/capstan/internal/machinery/forwardproxy"
)

// answerTimeout is how long a hub may take to answer one question where there may be others to turn to.
const answerTimeout = 10 * time.Second

// candidate is a hub that the agent may register with, as a bootstrap kubeconfig describes it.
type candidate struct {
	file   string
	config *clientcmdapi.Config
	err    error // why the file cannot be used
}

// candidates reads the bootstrap kubeconfigs, in their order.
func (b *Bootstrap) candidates() (all []candidate) {
	for _, file := range b.Kubeconfigs {
		config, err := b.load(file)
		all = append(all, candidate{file: file, config: config, err: err})
	}
	return all
}

// load reads a kubeconfig and, into it, the CA file that it names: the hub kubeconfig made of it must not depend on it.
func (b *Bootstrap) load(file string) (*clientcmdapi.Config, error) {
	config, err := b.access().Load(file)
	if err != nil {
		return nil, fmt.Errorf("read the bootstrap kubeconfig: %w", err)
	}
	for _, hub := range config.Clusters {
		if hub.CertificateAuthority == "" || len(hub.CertificateAuthorityData) > 0 {
			continue
		}
		if hub.CertificateAuthorityData, err = os.ReadFile(hub.CertificateAuthority); err != nil {
			return nil, fmt.Errorf("bootstrap kubeconfig %s: read the CA of the hub: %w", file, err)
		}
		hub.CertificateAuthority = ""
	}
	if err := checkHub(config); err != nil {
		return nil, fmt.Errorf("bootstrap kubeconfig %s: %w", file, err)
	}
	return config, nil
}

// checkHub fails if the current context leads to no hub, or to one without TLS.
func checkHub(config *clientcmdapi.Config) error {
	_, hub, err := hubkubeconfig.HubCluster(config)
	if err != nil {
		return err
	}
	return forwardproxy.CheckTLS(&rest.Config{
		Host: hub.Server, TLSClientConfig: rest.TLSClientConfig{CAData: hub.CertificateAuthorityData, Insecure: hub.InsecureSkipTLSVerify},
	})
}

// files are the bootstrap kubeconfigs and the files that they name.
func (b *Bootstrap) files() (all []string) {
	for _, file := range b.Kubeconfigs {
		all = append(all, file)
		config, err := b.access().Load(file)
		if err != nil {
			continue
		}
		for _, hub := range config.Clusters {
			all = appendNamed(all, hub.CertificateAuthority)
		}
		for _, user := range config.AuthInfos {
			all = appendNamed(all, user.ClientCertificate, user.ClientKey, user.TokenFile)
		}
	}
	return all
}

func appendNamed(all []string, names ...string) []string {
	for _, name := range names {
		if name != "" {
			all = append(all, name)
		}
	}
	return all
}

// choose picks the hub to register with: the first that accepts registrations of the cluster. One that denied it or
// did not answer is the last to be tried. With one hub there is no choice.
func (b *Bootstrap) choose(ctx context.Context, all []candidate) (*candidate, error) {
	if len(all) == 1 {
		return &all[0], all[0].err
	}
	var order, last []*candidate
	for i := range all {
		if b.left != nil && !b.left.refused && b.left.file == all[i].file {
			last = append(last, &all[i])
		} else {
			order = append(order, &all[i])
		}
	}
	var reasons []error
	for _, c := range append(order, last...) {
		err := b.wouldHave(ctx, c)
		if err == nil {
			return c, nil
		}
		reasons = append(reasons, fmt.Errorf("hub of %s: %w", c.file, explain(err, c.file)))
	}
	return nil, fmt.Errorf("no hub would have cluster %s: %w", b.Identity.Cluster, errors.Join(reasons...))
}

// wouldHave checks whether the bootstrap credential may register at a hub, and whether the cluster has been denied.
func (b *Bootstrap) wouldHave(ctx context.Context, c *candidate) error {
	if c.err != nil {
		return c.err
	}
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	config, err := b.registrationConfig(ctx, c, b.Identity.Cluster)
	if err != nil {
		return err
	}
	hub, closeIdle, err := newClient(config)
	if err != nil {
		return err
	}
	defer closeIdle()
	if !b.access().Brokered { // a broker reviews no rights; it refuses the read of the cluster
		if err := mayRegister(ctx, hub); err != nil {
			return err
		}
	}
	cluster := &clusterv1.ManagedCluster{}
	err = hub.Get(ctx, client.ObjectKey{Name: b.Identity.Cluster}, cluster)
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case monitor.Denies(cluster):
		return fmt.Errorf("an administrator denied cluster %s", b.Identity.Cluster)
	}
	return nil
}

// mayRegister checks the rights that registering takes.
func mayRegister(ctx context.Context, hub client.Client) error {
	for _, right := range []authorizationv1.ResourceAttributes{
		{Group: clusterv1.GroupVersion.Group, Resource: "managedclusters", Verb: "create"},
		{Group: clusterv1.GroupVersion.Group, Resource: "managedclusters", Verb: "get"},
		{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "create"},
		{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "get"},
		{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "list"},
		{Group: certificatesv1.GroupName, Resource: "certificatesigningrequests", Verb: "watch"},
	} {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		if err := hub.Create(ctx, review); err != nil {
			return err
		}
		if !review.Status.Allowed {
			return fmt.Errorf("the bootstrap credential may not %s %s.%s there", right.Verb, right.Resource, right.Group)
		}
	}
	return nil
}

// ClusterExists reports whether the hub of the credential in the store has a cluster of the name. The agent's own credential may read
// its own cluster alone; the bootstrap credential may read clusters whose names it knows, as long as it is valid.
func (b *Bootstrap) ClusterExists(ctx context.Context, cluster string) (bool, error) {
	credential, err := b.Store.Load()
	if err != nil {
		return false, err
	}
	for _, c := range b.candidates() {
		if c.err == nil && credential != nil && credential.MadeFor(c.config) == nil {
			return b.clusterExistsOn(ctx, &c, cluster)
		}
	}
	return false, fmt.Errorf("there is no bootstrap kubeconfig of the hub in %s", strings.Join(b.Kubeconfigs, ", "))
}

func (b *Bootstrap) clusterExistsOn(ctx context.Context, c *candidate, cluster string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTimeout)
	defer cancel()
	config, err := b.registrationConfig(ctx, c, cluster)
	if err != nil {
		return false, err
	}
	hub, closeIdle, err := newClient(config)
	if err != nil {
		return false, err
	}
	defer closeIdle()
	err = hub.Get(ctx, client.ObjectKey{Name: cluster}, &clusterv1.ManagedCluster{})
	if apierrors.IsNotFound(err) && !apierrors.IsUnexpectedServerError(err) { // a proxy answers so
		return false, nil
	}
	return err == nil, explain(err, c.file)
}
