package importer

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	bootstrapapi "k8s.io/cluster-bootstrap/token/api"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/capstan-io/capstan/internal/machinery/fleet"
	"github.com/capstan-io/capstan/internal/operator/installer"
)

// tokenLifetime is how long an agent has to join, from when its cluster was imported, until that is repeated.
const tokenLifetime = 24 * time.Hour

// render makes the values of the installation in a cluster: those of the renderers, each over those before it.
func (c *Controller) render(ctx context.Context, cluster string) (map[string]any, error) {
	values := map[string]any{"createNamespace": true}
	for _, name := range c.Renderers {
		renderer := c.renderAuto
		if name == fleet.RendererFromConfigSecret {
			renderer = c.renderFromConfigSecret
		}
		more, err := renderer(ctx, cluster)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		installer.MergeValues(values, more)
	}
	// Whatever the values say, it is this cluster that is imported.
	installer.MergeValues(values, map[string]any{"klusterlet": map[string]any{"clusterName": cluster}})
	return values, nil
}

// renderAuto has the agent join with a token of the bootstrap service account, from the images that the hub knows.
func (c *Controller) renderAuto(ctx context.Context, _ string) (map[string]any, error) {
	bootstrap, err := c.bootstrapKubeconfig(ctx)
	if err != nil {
		return nil, err
	}
	images := map[string]any{}
	if c.AgentImage != "" {
		images["overrides"] = map[string]any{
			"operatorImage": c.AgentImage, "registrationImage": c.AgentImage, "workImage": c.AgentImage}
	}
	pullSecret, err := c.pullSecret(ctx)
	if err != nil {
		return nil, err
	}
	if pullSecret != "" {
		images["imageCredentials"] = map[string]any{"createImageCredentials": true, "dockerConfigJson": pullSecret}
	}
	return map[string]any{"bootstrapHubKubeConfig": bootstrap, "images": images}, nil
}

// bootstrapKubeconfig is what the agent joins with, at the address that the hub publishes.
func (c *Controller) bootstrapKubeconfig(ctx context.Context) (string, error) {
	published := client.ObjectKey{Namespace: metav1.NamespacePublic, Name: bootstrapapi.ConfigMapClusterInfo}
	info := &corev1.ConfigMap{}
	if err := c.c.Live.Get(ctx, published, info); err != nil {
		return "", fmt.Errorf("find out where agents reach the hub: get ConfigMap %s: %w", published, err)
	}
	config, err := clientcmd.Load([]byte(info.Data[bootstrapapi.KubeConfigKey]))
	if err != nil {
		return "", fmt.Errorf("find out where agents reach the hub: ConfigMap %s: its %s is no kubeconfig: %w", published,
			bootstrapapi.KubeConfigKey, err)
	}
	for _, hub := range config.Clusters {
		if hub.Server == "" {
			continue
		}
		token, err := c.token(ctx)
		if err != nil {
			return "", err
		}
		content, err := clientcmd.Write(*installer.BootstrapKubeconfig(hub.Server, hub.CertificateAuthorityData, token, ""))
		return string(content), err
	}
	return "", fmt.Errorf("find out where agents reach the hub: ConfigMap %s: its %s names no server", published, bootstrapapi.KubeConfigKey)
}

// token is a new one of the bootstrap service account.
func (c *Controller) token(ctx context.Context) (string, error) {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: fleet.NamespaceOperators, Name: fleet.ServiceAccountBootstrap}}
	request := &authenticationv1.TokenRequest{}
	request.Spec.ExpirationSeconds = ptr.To(int64(tokenLifetime / time.Second))
	if err := c.c.Live.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("make a token of service account %s: %w", client.ObjectKeyFromObject(account), err)
	}
	return request.Status.Token, nil
}

// pullSecret is the Docker configuration with which the images of the agent are pulled; empty if there is none.
func (c *Controller) pullSecret(ctx context.Context) (string, error) {
	of := client.ObjectKey{Namespace: fleet.NamespaceOperators, Name: fleet.SecretImagePullCredentials}
	secret := &corev1.Secret{}
	if err := c.c.Live.Get(ctx, of, secret); apierrors.IsNotFound(err) {
		return "", nil
	} else if err != nil {
		return "", fmt.Errorf("get Secret %s: %w", of, err)
	}
	return string(secret.Data[corev1.DockerConfigJsonKey]), nil
}

// errNoObject is what is wrong with values that are none. Why they are not would be in words of theirs, and they have credentials in them.
var errNoObject = errors.New("it is not a YAML object")

// renderFromConfigSecret reads the values from a Secret in the namespace of the cluster.
func (c *Controller) renderFromConfigSecret(ctx context.Context, cluster string) (map[string]any, error) {
	of := client.ObjectKey{Namespace: cluster, Name: fleet.SecretClusterImportConfig}
	secret := &corev1.Secret{}
	if err := c.c.Live.Get(ctx, of, secret); err != nil {
		return nil, fmt.Errorf("get Secret %s with values of the chart klusterlet: %w", of, err)
	}
	content := secret.Data[fleet.KeyHelmValues]
	if len(content) == 0 {
		return nil, fmt.Errorf("secret %s has no key %s; store values of the chart klusterlet under it", of, fleet.KeyHelmValues)
	}
	values := map[string]any{}
	if err := yaml.Unmarshal(content, &values); err != nil {
		return nil, fmt.Errorf("secret %s: %s: %w", of, fleet.KeyHelmValues, errNoObject)
	}
	return values, nil
}
