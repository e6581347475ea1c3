// Package hubaccess reports whether the agent of a Klusterlet can do its work on the hub: whether its credentials lead there, and have the
// rights that it needs.
package hubaccess

import (
	"context"
	"fmt"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	"k8s.io/client-go/rest"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/machinery/tcp"
	"github.com/capstan-io/capstan/internal/operator/kubeconfigsecret"
)

// What to do about a credential that lacks something, and about what the agent is to register with.
const (
	registersAgain = "; delete it, and the agent registers again"
	putNewOne      = "Put a new one there, with the token of capstan get token"
)

// requestTimeout is how long a hub may take to answer a request.
const requestTimeout = 10 * time.Second

// Credentials are the Secrets of an agent.
type Credentials struct {
	// Namespace is that of the Secrets.
	Namespace string
	// Bootstrap is what the agent registers with; nil if it does not exist.
	Bootstrap *corev1.Secret
	// SkipBootstrap leaves that out: an agent with several hubs has several.
	SkipBootstrap bool
	// Hub is what the agent has after it registered; nil if it does not exist.
	Hub *corev1.Secret
	// GRPC says that the agent reaches the hub by its gRPC server: the Secrets have configurations for that in place of kubeconfigs.
	GRPC bool
	// AWS says that the agent registers by AWS IAM: a program in its pod makes the tokens for the hub, with a role that nobody else has.
	AWS bool
}

// key is that of what leads to the hub, in the Secrets.
func (c Credentials) key() string {
	if c.GRPC {
		return fleet.KeyConfig
	}
	return fleet.KeyKubeconfig
}

// Check sends requests to the hub, and returns the condition HubConnectionDegraded.
func Check(ctx context.Context, c Credentials) metav1.Condition {
	reason, message := c.hub(ctx)
	if reason == fleet.ReasonHubConnectionFunctional {
		return metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionFalse, Reason: reason, Message: message}
	}
	if !c.SkipBootstrap {
		bootstrapReason, bootstrapMessage := c.bootstrap(ctx)
		reason, message = bootstrapReason+","+reason, bootstrapMessage+"\n"+message
	}
	return metav1.Condition{Type: fleet.ConditionHubConnectionDegraded, Status: metav1.ConditionTrue, Reason: reason, Message: message}
}

// hub reports on the credential that the agent has obtained.
func (c Credentials) hub(ctx context.Context) (reason, message string) {
	name := c.Namespace + "/" + fleet.SecretHubKubeconfig
	switch {
	case c.Hub == nil:
		return fleet.ReasonHubKubeConfigSecretMissing, "Secret " + name + " does not exist; the agent creates it once " + c.approval() +
			": accept the cluster on the hub"
	case len(c.Hub.Data[c.key()]) == 0:
		return fleet.ReasonHubKubeConfigMissing, "Secret " + name + " has no key " + c.key() + registersAgain
	}
	cluster := string(c.Hub.Data[fleet.KeyClusterName])
	if cluster == "" {
		return fleet.ReasonClusterNameMissing, "Secret " + name + " has no key " + fleet.KeyClusterName + registersAgain
	}
	if c.GRPC {
		return c.hubByGRPC(ctx, name, cluster)
	}
	if c.AWS {
		return fleet.ReasonHubConnectionFunctional, fmt.Sprintf("The agent has registered by AWS IAM, as cluster %s. It alone can use the "+
			"kubeconfig of Secret %s, and says here when it does not reach the hub", cluster, name)
	}
	host, denied, err := review(ctx, c.Hub, neededBy(cluster))
	switch {
	case err != nil:
		return fleet.ReasonHubKubeConfigError, fmt.Sprintf("The hub cannot be asked with the kubeconfig of Secret %s: %v", name, err)
	case len(denied) > 0:
		return fleet.ReasonHubKubeConfigUnauthorized, fmt.Sprintf("The agent with the kubeconfig of Secret %s lacks rights on the hub %s: %s. "+
			"Accept the cluster there: capstan accept --clusters %s", name, host, strings.Join(denied, ", "), cluster)
	}
	return fleet.ReasonHubConnectionFunctional, fmt.Sprintf("The agent has the rights that it needs on the hub %s, as cluster %s", host, cluster)
}

// approval is what the agent waits for before it has a credential.
func (c Credentials) approval() string {
	if c.AWS {
		return "AWS lets it into the hub"
	}
	return "the hub has approved its certificate request"
}

func (c Credentials) bootstrap(ctx context.Context) (reason, message string) {
	name := c.Namespace + "/" + fleet.SecretBootstrapHubKubeconfig
	if c.Bootstrap == nil {
		return fleet.ReasonBootstrapSecretMissing, "Secret " + name + " does not exist; create it with " + c.describeNeeded() +
			" under the key " + c.key() + ", as capstan join does"
	}
	if c.GRPC {
		return c.bootstrapByGRPC(ctx, name)
	}
	host, denied, err := review(ctx, c.Bootstrap, neededToRegister)
	switch {
	case apierrors.IsUnauthorized(err):
		return fleet.ReasonBootstrapSecretError, fmt.Sprintf("The hub %s does not accept the credential in the kubeconfig of Secret %s, "+
			"which is wrong or has expired. %s", host, name, putNewOne)
	case err != nil:
		return fleet.ReasonBootstrapSecretError, fmt.Sprintf("The hub cannot be asked with the kubeconfig of Secret %s: %v", name, err)
	case len(denied) > 0:
		return fleet.ReasonBootstrapSecretUnauthorized, fmt.Sprintf("The kubeconfig of Secret %s lacks rights on the hub %s: %s. %s", name, host,
			strings.Join(denied, ", "), putNewOne)
	}
	return fleet.ReasonBootstrapSecretFunctional, "The kubeconfig of Secret " + name + " may register on the hub " + host
}

// describeNeeded is what leads to the hub, in words.
func (c Credentials) describeNeeded() string {
	if c.GRPC {
		return "the configuration of a gRPC client of the hub"
	}
	return "a kubeconfig of the hub"
}

// review has the hub that the kubeconfig of the Secret leads to review the rights, and returns those that are denied.
func review(ctx context.Context, secret *corev1.Secret, needed []authorizationv1.ResourceAttributes) (
	host string, denied []string, err error,
) {
	config, err := kubeconfigsecret.Config(secret)
	if err != nil {
		return "", nil, err
	}
	config.Timeout = requestTimeout
	new(tcp.Dialer).Use(config)
	transport, err := rest.HTTPClientFor(config)
	if err != nil {
		return config.Host, nil, err
	}
	defer utilnet.CloseIdleConnectionsFor(transport.Transport)
	client, err := authorizationclient.NewForConfigAndClient(config, transport)
	if err != nil {
		return config.Host, nil, err
	}
	for _, right := range needed {
		request := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &right}}
		answer, err := client.SelfSubjectAccessReviews().Create(ctx, request, metav1.CreateOptions{})
		if err != nil {
			return config.Host, nil, err
		}
		if !answer.Status.Allowed {
			denied = append(denied, describe(right))
		}
	}
	return config.Host, denied, nil
}

func describe(right authorizationv1.ResourceAttributes) string {
	text := right.Verb + " " + right.Resource
	if right.Subresource != "" {
		text += "/" + right.Subresource
	}
	if right.Group != "" {
		text += "." + right.Group
	}
	if right.Name != "" {
		text += " " + right.Name
	}
	if right.Namespace != "" {
		text += " in namespace " + right.Namespace
	}
	return text
}
