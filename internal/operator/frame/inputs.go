package frame

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	operatorv1 "github.com/capstan-io/capstan/api/operator/v1"
	"github.com/capstan-io/capstan/internal/apiclient"
	"github.com/capstan-io/capstan/internal/apply"
	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/retry"
	"github.com/capstan-io/capstan/internal/operator/remote"
)

// OwnSecret is a Secret in the namespace of the operator; nil if there is none, or it may not be read: many clusters need none.
func (o *Operator) OwnSecret(ctx context.Context, name string) (*corev1.Secret, error) {
	if name == "" {
		return nil, nil
	}
	secret, err := o.Secrets.Get(ctx, o.Namespace, name)
	if apiclient.Denied(err) {
		return nil, nil
	}
	return secret, err
}

// TLSProfile is the ConfigMap with the TLS settings of components; nil if there is none.
func (o *Operator) TLSProfile(ctx context.Context) (*corev1.ConfigMap, error) {
	profile := &corev1.ConfigMap{}
	return ignoreNotFound(profile, o.Client.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: fleet.ConfigMapTLSProfile}, profile))
}

// ReplicasFor are those of each component with that placement. There may be many hosted installations on a cluster, so each component has
// one.
func (o *Operator) ReplicasFor(ctx context.Context, hosted bool, placement operatorv1.NodePlacement) (int32, error) {
	if hosted {
		return 1, nil
	}
	if o.Replicas > 0 {
		return o.Replicas, nil
	}
	nodes := &corev1.NodeList{}
	if err := o.Client.List(ctx, nodes); err != nil {
		return 0, fmt.Errorf("list the nodes to choose the number of replicas: %w", err)
	}
	return replicas(nodes.Items, placement, o.Nodes), nil
}

// Kubeconfig is a Secret, where components run, with the access of a service account to the cluster that a hosted installation is about.
type Kubeconfig struct{ Secret, Account types.NamespacedName }

// Kubeconfigs makes the Secrets, and returns how long the tokens in them are good. access is how the cluster is reached.
func (o *Operator) Kubeconfigs(ctx context.Context, cluster *apply.Cluster, access *rest.Config, desired []Kubeconfig) (
	secrets []client.Object, good time.Duration, err error,
) {
	for _, kubeconfig := range desired {
		stored, err := o.Secrets.Get(ctx, kubeconfig.Secret.Namespace, kubeconfig.Secret.Name)
		if err != nil {
			return nil, 0, err
		}
		account := remote.Account{Cluster: cluster.Client, Access: access, Name: kubeconfig.Account}
		now := o.Clock.Now()
		secret, refresh, err := remote.RenewKubeconfig(ctx, now, account, kubeconfig.Secret, stored)
		if err != nil {
			return nil, 0, err
		}
		secrets, good = append(secrets, secret), retry.Soonest(good, refresh.Sub(now))
	}
	return secrets, good, nil
}

// RenewedKubeconfigs are those of the Secrets that there are, with new tokens where these are due, and how long the tokens are good:
// without them, what is installed would end. A Secret says itself which account it is of. One that says nothing, or is of an account on
// another cluster, or of a former one, is left out.
func (o *Operator) RenewedKubeconfigs(ctx context.Context, cluster *apply.Cluster, access *rest.Config, names ...types.NamespacedName) (
	secrets []client.Object, good time.Duration, err error,
) {
	var there []Kubeconfig
	for _, name := range names {
		stored, err := o.Secrets.Get(ctx, name.Namespace, name.Name)
		if err != nil {
			return nil, 0, err
		}
		if stored == nil || remote.AccountOf(stored).Name == "" {
			continue
		}
		account := remote.Account{Cluster: cluster.Client, Access: access, Name: remote.AccountOf(stored)}
		same, err := account.Has(ctx, stored)
		if err != nil {
			return nil, 0, err
		}
		if same {
			there = append(there, Kubeconfig{Secret: name, Account: account.Name})
		}
	}
	return o.Kubeconfigs(ctx, cluster, access, there)
}

// answerTimeout is how long a cluster may take to answer the first request of a reconcile: with a connection that it does not close, one
// that is gone would keep the request for longer, and with it a reconcile of another custom resource.
const answerTimeout = 10 * time.Second

// IsOwn reports whether a cluster, which has to answer soon, is that of the operator. secret is the name of the Secret that leads to it.
func (o *Operator) IsOwn(ctx context.Context, other *apply.Cluster, secret string) (bool, error) {
	own, err := clusterUID(ctx, o.Management)
	if err == nil {
		answered, cancel := context.WithTimeout(ctx, answerTimeout)
		defer cancel()
		var uid types.UID
		if uid, err = clusterUID(answered, other); err == nil {
			return own != "" && own == uid, nil
		}
	}
	return false, fmt.Errorf("find out which cluster the kubeconfig of Secret %s leads to: %w", secret, err)
}

// clusterUID tells clusters apart; it is empty for one that does not say.
func clusterUID(ctx context.Context, cluster *apply.Cluster) (types.UID, error) {
	system := &corev1.Namespace{}
	err := cluster.Client.Get(ctx, types.NamespacedName{Name: metav1.NamespaceSystem}, system)
	return system.UID, client.IgnoreNotFound(err)
}

// CopyOf is the Secret in another namespace.
func CopyOf(source *corev1.Secret, namespace string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: source.Name}, Type: source.Type, Data: source.Data}
}

// LabelsToCopy are the labels of a custom resource that what it consists of has, too: not those by which tools find what is what, and not
// those of this API, which mean something on the object that has them.
func LabelsToCopy(labels map[string]string) map[string]string {
	copied := maps.Clone(labels)
	maps.DeleteFunc(copied, func(key, _ string) bool { return key == fleet.LabelApp || fleet.IsReservedLabel(key) })
	return copied
}

// AddLabels adds the labels that the objects do not have.
func AddLabels(labels map[string]string, objects ...client.Object) {
	if len(labels) == 0 {
		return
	}
	for _, object := range objects {
		all := maps.Clone(labels)
		maps.Copy(all, object.GetLabels())
		object.SetLabels(all)
	}
}
